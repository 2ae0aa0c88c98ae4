from threading import Event

import pytest

from labkit.errors import SettingError
from labkit.labs import Note, Point, batching_overlap
from labkit.labs.batching_overlap import OverlapSettings, run
from labkit.labs.freed_memory import Runs
from labkit.labs.subject import Subject


@pytest.fixture(scope="module")
def items(tiny: Subject) -> list[Point | Note]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching_overlap, "subject", lambda model, device: tiny)
        patch.setattr(batching_overlap, "_WARMUP_S", 0.1)
        patch.setattr(batching_overlap, "measure", lambda model, sizes, seconds, stop: [Runs("kept", 4, 20.0, 3.0)])
        return list(run(OverlapSettings(cap=4, threads=2, seconds=1.0), Event()))


def test_staged_rows_are_copied_less_than_stacked_ones(items: list[Point | Note]) -> None:
    points = {(item.series, item.x): item.y for item in items if isinstance(item, Point)}
    for cap in (1, 2, 4):
        assert points["copied, staged", cap] < points["copied, stacked", cap]
    assert points["copied, staged", 1] == 0.0  # a batch of one is always a view


def test_the_model_with_freed_memory_kept_is_told_per_row(items: list[Point | Note]) -> None:
    points = {(item.series, item.x): item.y for item in items if isinstance(item, Point)}
    assert points["memory kept", 4] == 5.0
    assert points["faults, memory kept", 4] == 3.0


def test_the_second_half_compares_preparing_threads_with_none(items: list[Point | Note]) -> None:
    rates = {item.x: item.y for item in items if isinstance(item, Point) and item.series == "requests per second"}
    assert sorted(rates) == [0, 1, 2]
    assert all(rate > 0 for rate in rates.values())
    said = [item.text for item in items if isinstance(item, Note)]
    assert any(text.startswith("one after the other") for text in said)


def test_a_cap_of_zero_is_refused_with_its_limit() -> None:
    with pytest.raises(SettingError, match="cap is 0"):
        OverlapSettings(cap=0)
