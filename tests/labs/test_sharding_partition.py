from collections.abc import Callable
from threading import Event

import numpy as np
import pytest

from labkit.errors import SettingError
from labkit.labs import Note, Point, sharding_partition
from labkit.labs.sharding_partition import PartitionSettings, run
from labkit.labs.specimen import Specimen


@pytest.fixture(autouse=True)
def _small(given: Callable[[object], None]) -> None:
    given(sharding_partition)


def _points(items: list[Point | Note], series: str) -> dict[float, float]:
    return {item.x: item.y for item in items if isinstance(item, Point) and item.series == series}


def test_the_cost_of_each_cut_is_its_longest_part_and_the_best_is_the_least() -> None:
    items = list(run(PartitionSettings(seconds=0.0), Event()))
    parts = [_points(items, name) for name in ("first stage", "second stage", "link")]
    costs = _points(items, "cost of the cut")
    assert sorted(costs) == [1, 2, 3, 4, 5]
    for cut, cost in costs.items():
        assert cost == pytest.approx(max(part[cut] for part in parts))
    times = np.array(list(_points(items, "time of the layer").values()))
    for cut, first in parts[0].items():
        assert first == pytest.approx(times[: int(cut)].sum())
    assert min(_points(items, "best cut").values(), default=0.0) == pytest.approx(min(costs.values()))


def test_bytes_at_the_cuts_are_those_of_the_values_that_cross() -> None:
    items = list(run(PartitionSettings(rows=4, seconds=0.0), Event()))
    widths = np.array([16, 16, 512, 512, 16, 16, 16])
    assert list(_points(items, "crosses the cut").values()) == pytest.approx(list(4 * 4 * widths / 1000))


def test_the_readers_guess_is_priced_and_run_beside_the_best() -> None:
    items = list(run(PartitionSettings(guess=5, seconds=0.1), Event()))
    assert _points(items, "your guess") == {5: _points(items, "cost of the cut")[5]}
    for name in ("best cut", "equal count", "your guess"):
        assert all(rate > 0 for rate in _points(items, f"{name} (measured)").values())
        assert any(item.text.startswith(f"{name}: ") and "measured" in item.text for item in items if _is_note(item))


def test_an_assumed_link_is_said_to_be_and_nothing_is_run_on_it() -> None:
    items = list(run(PartitionSettings(link_mb_per_s=1.0, seconds=1.0), Event()))
    assert any("the link is assumed" in item.text for item in items if _is_note(item))
    assert not any("(measured)" in item.series for item in items if isinstance(item, Point))
    links = _points(items, "link")
    assert links[2] == pytest.approx(0.1 + 1000 * 4 * 4 * 512 / 1e6)


def test_a_slower_second_device_makes_its_stage_longer(layered: Specimen) -> None:
    even = list(run(PartitionSettings(seconds=0.0), Event()))
    slow = list(run(PartitionSettings(slower=4.0, seconds=0.0), Event()))
    for cut, ms in _points(even, "second stage").items():
        assert _points(slow, "second stage")[cut] == pytest.approx(4 * ms)


def test_a_stopped_run_starts_no_pipeline() -> None:
    stop = Event()
    stop.set()
    assert not any("Running" in item.text for item in run(PartitionSettings(), stop) if _is_note(item))


def test_settings_outside_their_limits_are_refused() -> None:
    with pytest.raises(SettingError, match=r"slower is 0\.5"):
        PartitionSettings(slower=0.5)


def _is_note(item: Point | Note) -> bool:
    return isinstance(item, Note)
