from dataclasses import replace
from threading import Event

import pytest

from labkit.labs import Dials, Note, Point, batching_live
from labkit.labs.batching_live import LiveSettings, run
from labkit.labs.subject import Subject

SETTINGS = LiveSettings(rate_per_s=300.0, seconds=1.5, cap=4)


@pytest.fixture(autouse=True)
def _tiny_subject(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching_live, "subject", lambda model, device: tiny)


def test_a_run_yields_every_series_of_the_panel() -> None:
    items = list(run(Dials(SETTINGS), Event()))
    series = {item.series for item in items if isinstance(item, Point)}
    assert {"p50", "offered", "answered in time", "waiting", "mean batch", "fill", "device busy"} <= series
    assert all(0 <= item.y <= 100.001 for item in items if isinstance(item, Point) and item.series == "within SLO")


def test_a_control_turned_while_it_runs_reaches_the_engine() -> None:
    dials = Dials(replace(SETTINGS, seconds=30.0))
    stop, said, offered = Event(), [], []
    for item in run(dials, stop):
        if isinstance(item, Note):
            said.append(item.text)
        elif item.series == "offered":
            offered.append(item.y)
            if len(offered) == 3:
                dials.set(replace(dials.get(), rate_per_s=20.0, policy="max wait", cap=2))
            if len(offered) > 3:
                stop.set()
    assert any("20/s, max wait, at most 2 rows" in text for text in said)


def test_another_model_gets_another_engine() -> None:
    dials = Dials(replace(SETTINGS, seconds=30.0))
    stop, loaded = Event(), 0
    for item in run(dials, stop):
        if isinstance(item, Note) and item.text.startswith("Loading"):
            loaded += 1
            if loaded == 2:
                stop.set()
        elif isinstance(item, Point):
            dials.set(replace(dials.get(), model="efficientnet-lite0"))
    assert loaded == 2


def test_an_impossible_rate_ends_the_run_with_the_reason() -> None:
    with pytest.raises(ValueError, match="rate_per_s is -1"):
        list(run(Dials(replace(SETTINGS, rate_per_s=-1.0)), Event()))
