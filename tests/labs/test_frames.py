from itertools import islice
from threading import Event

import pytest

from labkit.labs import Dials, frames
from labkit.labs.frames import Recent
from labkit.records import Recorder, StepRecord


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FRAME_S", 0.0)


def test_what_is_turned_is_told_once_and_as_it_is_now() -> None:
    dials = Dials("greedy")
    told = []
    for number, (_, turned) in enumerate(islice(frames.frames(dials, 0, Event()), 4)):
        told.append(turned)
        if number == 1:
            dials.set("max wait")
            dials.set("eager")
    assert told == [None, None, "eager", None]


def test_what_was_turned_while_an_engine_was_built_is_not_lost() -> None:
    dials = Dials("greedy")
    version = dials.version
    dials.set("max wait")
    assert next(frames.frames(dials, version, Event()))[1] == "max wait"


def test_the_frames_end_when_they_are_stopped() -> None:
    stop, count = Event(), 0
    for _ in frames.frames(Dials(0), 0, stop):
        count += 1
        stop.set()
    assert count == 1


def _step(finished_s: float) -> StepRecord:
    return StepRecord(0, "stage0", 0, "cpu", finished_s - 0.1, finished_s, rows=1, cap=1)


def test_rows_are_read_once_and_forgotten_when_they_are_too_old() -> None:
    recorder = Recorder()
    steps = Recent(recorder.steps_since, window_s=10.0)
    recorder.add_steps([_step(1.0)])
    assert steps.read(now_s=2.0) == steps.rows == [_step(1.0)]
    recorder.add_steps([_step(5.0)])
    assert steps.read(now_s=6.0) == [_step(5.0)]
    assert steps.rows == [_step(1.0), _step(5.0)]
    assert steps.read(now_s=11.5) == []
    assert steps.rows == [_step(5.0)]
