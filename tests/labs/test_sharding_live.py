from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event

import pytest

from labkit.errors import SettingError
from labkit.labs import Dials, Note, Point, sharding_live
from labkit.labs.sharding_live import LiveSettings, run
from labkit.labs.specimen import Specimen

SETTINGS = LiveSettings(rows=2, request_rows=4, in_flight=2, seconds=60.0)


@pytest.fixture(autouse=True)
def _small(given: Callable[[object], None]) -> None:
    given(sharding_live)


def _until(dials: Dials[LiveSettings], word: str, then: Callable[[], None] | None = None) -> list[Point | Note]:
    """Run until a note with `word` in it has come; `then` is called at the first frame."""
    stop, seen = Event(), []
    for item in run(dials, stop):
        seen.append(item)
        if then is not None and isinstance(item, Point) and item.series == "rows per second" and item.y > 0:
            then()
            then = None
        if isinstance(item, Note) and word in item.text:
            stop.set()
    assert stop.is_set(), [item.text for item in _notes(seen)]
    return seen


def _notes(items: list[Point | Note]) -> Iterator[Note]:
    return (item for item in items if isinstance(item, Note))


def test_a_run_yields_every_series_of_the_panel() -> None:
    items = list(run(Dials(replace(SETTINGS, seconds=1.0)), Event()))
    series = {item.series for item in items if isinstance(item, Point)}
    wanted = {f"stage {n}{part}" for n in (0, 1) for part in ("", " busy", " step")}
    assert wanted | {"rows per second", "planned (modelled)"} <= series
    bars = [item for item in items if isinstance(item, Point) and item.series == "stage 1"]
    assert len(bars) % 2 == 0
    assert all(item.y == 1 for item in bars)


def test_the_first_words_are_the_cut_and_what_it_should_give() -> None:
    said = [note.text for note in _notes(list(run(Dials(replace(SETTINGS, seconds=0.5, speeds="1 2")), Event())))]
    assert "layers on cpu" in said[1]
    assert "(modelled)" in said[1]
    assert "emulated" in said[1]


def test_pressing_kill_loses_a_worker_and_no_request() -> None:
    dials = Dials(SETTINGS)
    items = _until(dials, "was back", lambda: dials.set(replace(dials.get(), kill=1, stage=1)))
    said = [note.text for note in _notes(items)]
    assert "Stage 1 was killed" in said
    assert any("was back" in text and "0 requests failed" in text for text in said)


def test_pressing_slow_down_is_told_as_emulated() -> None:
    dials = Dials(SETTINGS)
    items = _until(dials, "takes 3 times as long", lambda: dials.set(replace(dials.get(), slow=1, factor=3.0)))
    assert any("takes 3 times as long (emulated)" in note.text for note in _notes(items))


def test_a_stage_that_is_not_there_is_answered_with_the_last_one() -> None:
    dials = Dials(SETTINGS)
    _until(dials, "There is no stage 3; the last one is stage 1", lambda: dials.set(replace(SETTINGS, hang=1, stage=3)))


def test_presses_of_an_earlier_run_do_not_count() -> None:
    items = list(run(Dials(replace(SETTINGS, kill=4, slow=2, seconds=1.0)), Event()))
    assert not any("killed" in note.text or "as long" in note.text for note in _notes(items))


def test_another_number_of_stages_gets_another_pipeline_and_the_old_rows_end() -> None:
    dials = Dials(SETTINGS)
    items = _until(dials, "1 stage of 6 layers", lambda: dials.set(replace(SETTINGS, stages=1)))
    ended = {item.series for item in items if isinstance(item, Point) and item.y != item.y}
    assert {"stage 0", "stage 1", "stage 1 busy"} <= ended


def test_another_load_does_not_need_another_pipeline() -> None:
    dials = Dials(SETTINGS)
    stop, loaded, frames = Event(), 0, 0
    for item in run(dials, stop):
        loaded += isinstance(item, Note) and item.text.startswith("Loading")
        frames += isinstance(item, Point) and item.series == "rows per second"
        if frames == 2:
            dials.set(replace(SETTINGS, load="open loop", rate_per_s=40.0))
        if frames == 5:
            stop.set()
    assert loaded == 1


def test_a_rehearsal_slows_and_kills_without_anybody() -> None:
    said = [note.text for note in _notes(list(run(Dials(replace(SETTINGS, seconds=3.0, rehearse=True)), Event())))]
    assert any("Stage 1 now takes 2 times as long" in text for text in said)
    assert "Stage 0 was killed" in said


def test_worker_processes_are_killed_and_replaced_too(layered: Specimen, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = replace(layered, carrier="process")
    monkeypatch.setattr(sharding_live, "specimen", lambda model, device: processes)
    dials = Dials(SETTINGS)
    items = _until(dials, "was back", lambda: dials.set(replace(dials.get(), kill=1)))
    assert any("0 requests failed" in note.text for note in _notes(items))


@pytest.mark.parametrize(("name", "value"), [("rows", 0), ("factor", 0.5), ("seconds", -1.0), ("speeds", "fast")])
def test_settings_outside_their_limits_are_refused(name: str, value: object) -> None:
    with pytest.raises(SettingError):
        replace(SETTINGS, **{name: value})
