from threading import Event

import pytest

from labkit.errors import SettingError, UnknownName
from labkit.labs import Note, Point, batching_curve
from labkit.labs.batching_curve import CurveSettings, measure, run, sizes_up_to
from labkit.labs.subject import Subject, subject


def _points(items: list[Point | Note], series: str) -> dict[float, float]:
    return {item.x: item.y for item in items if isinstance(item, Point) and item.series == series}


def test_each_round_times_each_size_once(tiny: Subject) -> None:
    rounds = list(measure(tiny, [1, 2, 4], 3, Event()))
    assert [list(times) for times in rounds] == [[1, 2, 4]] * 3
    assert all(ms > 0 for times in rounds for ms in times.values())


def test_the_median_lies_between_the_rounds_and_the_throughput_follows_from_it(
    tiny: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching_curve, "subject", lambda model, device: tiny)
    items = list(run(CurveSettings(cap=4, rounds=3), Event()))
    medians, rates = _points(items, "median"), _points(items, "rows per second")
    for size, ms in medians.items():
        seen = [_points(items, f"round {number}")[size] for number in (1, 2, 3)]
        assert sorted(seen)[1] == ms
        assert rates[size] == pytest.approx(1000 * size / ms)
        assert _points(items, "2 S(b)")[size] == pytest.approx(2 * ms)


def test_known_times_lead_to_the_known_best_batch(monkeypatch: pytest.MonkeyPatch, tiny: Subject) -> None:
    monkeypatch.setattr(batching_curve, "subject", lambda model, device: tiny)
    exact = {size: 20.0 + size for size in (1, 2, 4, 8, 16)}
    monkeypatch.setattr(batching_curve, "measure", lambda *arguments: iter([exact, exact]))
    notes = [item.text for item in run(CurveSettings(cap=16, slo_ms=60.0), Event()) if isinstance(item, Note)]
    assert any("20.0 ms + 1.00 ms per row" in note for note in notes)
    assert notes[-1].endswith("is 10")  # 2 * (20 + 10) = 60


def test_a_stopped_curve_ends_without_a_conclusion(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching_curve, "subject", lambda model, device: tiny)
    stop = Event()
    stop.set()
    assert not [item for item in run(CurveSettings(), stop) if isinstance(item, Point)]


@pytest.mark.parametrize(("cap", "sizes"), [(2, [1, 2]), (12, [1, 2, 4, 8, 12]), (16, [1, 2, 4, 8, 16])])
def test_sizes_are_the_powers_of_two_and_the_cap(cap: int, sizes: list[int]) -> None:
    assert sizes_up_to(cap) == sizes


def test_a_cap_of_one_is_refused_with_its_limit() -> None:
    with pytest.raises(SettingError, match="cap is 1; it must be at least 2"):
        CurveSettings(cap=1)


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'minilm'"):
        subject("minilmm")
