"""What a pipeline's step rows and snapshot look like on a screen: bars, a rate, a sentence about the bottleneck."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from labkit.labs.point import Point
from labkit.records import StepRecord
from labkit.sharding.health import PipelineSnapshot, StageSnapshot

__all__ = ["blanks", "bottleneck", "gantt", "rows_per_s", "shares"]

_BARS = 32
# Within this factor stages count as balanced, so that noise names no bottleneck.
_AHEAD = 1.15


def gantt(steps: Sequence[StepRecord], begun_s: float) -> Iterator[Point]:
    """The newest finished steps of each stage as bars: pairs of points at the height of the stage's number."""
    done = [step for step in steps if step.outcome == "ok"]
    for name in sorted({step.stage for step in done}):
        stage = int(name.removeprefix("stage"))
        for step in [step for step in done if step.stage == name][-_BARS:]:
            yield Point(f"stage {stage}", step.started_s - begun_s, stage)
            yield Point(f"stage {stage}", step.finished_s - begun_s, stage)


def rows_per_s(steps: Iterable[StepRecord], last_stage: int, since_s: float, now_s: float) -> float:
    """Rows that the last stage has finished since then, per second.

    >>> row = StepRecord(0, "stage1", 0, "cpu", 0.5, 0.6, rows=4, cap=4)
    >>> rows_per_s([row, row], last_stage=1, since_s=0.0, now_s=2.0)
    4.0
    """
    name = f"stage{last_stage}"
    done = [step for step in steps if step.stage == name and step.outcome == "ok" and step.finished_s >= since_s]
    return sum(step.rows for step in done) / (now_s - since_s)


def shares(snapshot: PipelineSnapshot, at_s: float) -> Iterator[Point]:
    """How busy each stage is, and what a microbatch takes there."""
    for stage in snapshot.stages:
        yield Point(f"stage {stage.stage} busy", at_s, 100 * stage.busy)
        yield Point(f"stage {stage.stage} step", at_s, 1000 * stage.step_s or math.nan)


def blanks(stages: int) -> Iterator[Point]:
    """End all series of so many stages: the next pipeline may have fewer."""
    for stage in range(stages):
        for name in (f"stage {stage}", f"stage {stage} busy", f"stage {stage} step"):
            yield Point(name, math.nan, math.nan)


def bottleneck(snapshot: PipelineSnapshot) -> str:
    """Which stage sets the pace, and how slow its device is made; empty before each has done a step."""
    timed = sorted(snapshot.stages, key=_pace_s, reverse=True)
    if not timed or timed[-1].step_s == 0:
        return ""
    first = timed[0]
    emulated = f", made {first.slowdown:g} times slower (emulated)" if first.slowdown > 1 else ""
    pace = f"{1000 * first.step_s:.0f} ms a microbatch{emulated}"
    if len(timed) == 1:
        return f"There is one stage: {pace}"
    if _pace_s(first) < _AHEAD * _pace_s(timed[1]):
        return f"The stages are balanced: {pace}"
    return f"The bottleneck is stage {first.stage}: {pace}"


def _pace_s(stage: StageSnapshot) -> float:
    """Seconds between two microbatches of a stage, whose workers take turns."""
    return stage.step_s / max(1, stage.workers)
