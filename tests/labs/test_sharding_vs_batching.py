from collections.abc import Callable
from threading import Event

import pytest

from labkit.errors import SettingError
from labkit.labs import Note, Point, sharding_vs_batching
from labkit.labs.sharding_vs_batching import BATCHER, BOTH, PIPELINE, UNCUT, VersusSettings, run


@pytest.fixture(autouse=True)
def _small(given: Callable[[object], None]) -> None:
    given(sharding_vs_batching)


def test_every_system_meets_every_load_and_every_number_of_stages_the_single_request() -> None:
    items = list(run(VersusSettings(stages=2, cap=4, rows=2, seconds=0.1), Event()))
    points = {(item.series, item.x): item.y for item in items if isinstance(item, Point)}
    for name in (BATCHER, PIPELINE, BOTH, UNCUT):
        assert [points[name, users] >= 0 for users in (1, 2, 4)] == [True] * 3
        assert (f"{name}, median", 4) in points
    for stages in (1, 2, 3):
        for name in (
            "many requests (measured)",
            "alone, all cores in use",
            "alone, same cores a worker",
        ):
            assert points[name, stages] > 0


def test_more_stages_make_the_sum_no_shorter_and_the_fullest_worker_no_fuller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding_vs_batching, "_loads", lambda *arguments: iter(()))
    items = list(run(VersusSettings(stages=3, rows=2, seconds=0.05), Event()))
    sums = _series(items, "sum of stages and links (modelled)")
    memory = _series(items, "fullest worker")
    assert len(sums) == len(memory) == 4
    assert sums == sorted(sums)
    assert memory == sorted(memory, reverse=True)
    assert memory[-1] < memory[0]


def _series(items: list[Point | Note], name: str) -> list[float]:
    return [item.y for item in items if isinstance(item, Point) and item.series == name]


def test_the_winner_is_told_with_its_ratio_even_when_the_other_did_nothing() -> None:
    said = sharding_vs_batching._winner(4, {BATCHER: 200.0, PIPELINE: 100.0, BOTH: 150.0, UNCUT: 90.0})
    assert said.startswith("4 in flight: A: batcher answers 200 rows/s, B: pipeline 100 (x2.00)")
    assert "next to none" in sharding_vs_batching._winner(4, {BATCHER: 9.0, PIPELINE: 0.0, BOTH: 1.0, UNCUT: 1.0})


@pytest.mark.parametrize(
    ("seen", "said"),
    [({1: 20.0, 2: 20.3, 3: 20.5}, "no cut made it shorter"), ({1: 20.0, 2: 12.0}, "was the machine busy?")],
)
def test_a_request_that_got_shorter_is_not_explained_away(seen: dict[int, float], said: str) -> None:
    assert said in sharding_vs_batching._said(seen)


def test_a_stopped_comparison_ends_with_its_reason_or_without_a_word() -> None:
    stop = Event()
    items = []
    with pytest.raises(Exception, match="half-way"):  # noqa: PT012
        for item in run(VersusSettings(cap=1, seconds=0.05), stop):
            items.append(item)
            if isinstance(item, Note) and "in flight" in item.text:
                stop.set()
    assert not any(isinstance(item, Point) for item in items)


def test_one_stage_is_no_pipeline_to_compare() -> None:
    with pytest.raises(SettingError, match="stages is 1"):
        VersusSettings(stages=1)
