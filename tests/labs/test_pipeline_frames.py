import math

from labkit.labs.pipeline_frames import blanks, bottleneck, gantt, rows_per_s, shares
from labkit.records import StepRecord
from labkit.sharding.health import PipelineSnapshot, StageSnapshot


def _stage(stage: int, step_s: float, slowdown: float = 1.0, workers: int = 1) -> StageSnapshot:
    return StageSnapshot(stage, stage, stage + 1, "cpu", workers, workers, 0, 0, 0.5, step_s, (), slowdown)


def _snapshot(*stages: StageSnapshot) -> PipelineSnapshot:
    return PipelineSnapshot(open=True, queued=0, running=0, stages=stages)


def _step(stage: int, begun_s: float, ended_s: float, rows: int = 4) -> StepRecord:
    return StepRecord(0, f"stage{stage}", 0, "cpu", begun_s, ended_s, rows=rows, cap=4)


def test_a_step_is_a_bar_at_the_height_of_its_stage() -> None:
    points = list(gantt([_step(1, 10.5, 10.6), _step(0, 10.1, 10.2)], begun_s=10.0))
    assert [(point.series, round(point.x, 3), point.y) for point in points] == [
        ("stage 0", 0.1, 0),
        ("stage 0", 0.2, 0),
        ("stage 1", 0.5, 1),
        ("stage 1", 0.6, 1),
    ]


def test_a_failed_step_is_no_bar_and_only_the_newest_are_drawn() -> None:
    many = [_step(0, float(n), n + 0.5) for n in range(100)]
    points = list(gantt([*many, _step(0, 200.0, 201.0)._replace(outcome="failed")], 0.0))
    assert len(points) == 2 * 32
    assert points[-1].x == 99.5


def test_only_rows_that_left_the_last_stage_count() -> None:
    steps = [_step(0, 1.0, 1.1), _step(1, 1.1, 1.2), _step(1, 0.1, 0.2), _step(1, 1.5, 1.6, rows=2)]
    assert rows_per_s(steps, last_stage=1, since_s=1.0, now_s=3.0) == 3.0


def test_the_slowest_stage_is_named_with_its_emulated_slowness() -> None:
    said = bottleneck(_snapshot(_stage(0, 0.010), _stage(1, 0.031, slowdown=2.0)))
    assert said == "The bottleneck is stage 1: 31 ms a microbatch, made 2 times slower (emulated)"


def test_two_workers_make_a_stage_half_as_slow() -> None:
    assert "stage 0" in bottleneck(_snapshot(_stage(0, 0.020), _stage(1, 0.030, workers=2)))


def test_nearly_equal_stages_are_balanced_and_unknown_ones_say_nothing() -> None:
    assert bottleneck(_snapshot(_stage(0, 0.020), _stage(1, 0.022))).startswith("The stages are balanced")
    assert bottleneck(_snapshot(_stage(0, 0.020), _stage(1, 0.0))) == ""
    assert bottleneck(_snapshot(_stage(0, 0.020))) == "There is one stage: 20 ms a microbatch"


def test_a_stage_that_has_done_nothing_has_no_step_time() -> None:
    points = {point.series: point.y for point in shares(_snapshot(_stage(0, 0.0)), 1.0)}
    assert points["stage 0 busy"] == 50
    assert math.isnan(points["stage 0 step"])


def test_blanks_end_every_series_of_every_stage() -> None:
    names = {point.series for point in blanks(2)}
    assert names == {f"stage {n}{part}" for n in (0, 1) for part in ("", " busy", " step")}
