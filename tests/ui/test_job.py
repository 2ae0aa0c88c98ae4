import gc
import weakref
from threading import Event

import pytest

from labkit.errors import Unavailable
from labkit.labs import Note, Point
from labkit.ui import job as job_module
from labkit.ui.job import Job

WAIT_S = 10.0


def run(lab, draw=lambda: 0):
    job = Job(lab, draw)
    job.start()
    assert job.join(WAIT_S)
    return job


def test_a_job_collects_what_its_lab_yields():
    job = run(lambda stop: [Note("Stage"), Point("a", 0, 1), Point("b", 0, 5), Point("a", 1, 2)])
    assert (job.state, job.curves.points, job.curves.note) == ("done", 3, "Stage")
    assert {name: curve.y.tolist() for name, curve in job.curves.snapshot().items()} == {"a": [1, 2], "b": [5]}


def test_the_last_frame_is_drawn_after_the_last_point():
    seen = []
    job = Job(lambda stop: (Point("a", x, x) for x in range(1000)), lambda: seen.append(job.curves.points) or 0)
    job.start()
    assert job.join(WAIT_S)
    assert seen[-1] == 1000


def test_points_before_a_long_silence_are_drawn_while_it_lasts():
    drawn, go_on = Event(), Event()

    def lab(stop):
        yield Point("a", 0, 1)
        assert go_on.wait(WAIT_S)

    job = Job(lab, lambda: drawn.set() or 0 if job.curves.points else 0)
    job.start()
    assert drawn.wait(WAIT_S)
    assert job.state == "running"
    go_on.set()
    assert job.join(WAIT_S)


def test_stop_ends_an_endless_lab_and_closes_it():
    closed, started = Event(), Event()

    def lab(stop):
        try:
            while True:
                yield Point("a", 0, 1)
                started.set()
        finally:
            closed.set()

    job = Job(lab, lambda: 0)
    job.start()
    assert started.wait(WAIT_S)
    job.stop()
    assert job.join(WAIT_S)
    assert (job.state, closed.is_set()) == ("stopped", True)


def failing(error):
    def lab(stop):
        yield Point("a", 0, 1)
        raise error

    return lab


def test_a_failure_is_kept_as_text_with_its_traceback():
    job = run(failing(ValueError("rows is -1")))
    assert job.state == "failed"
    assert job.failure.message == "ValueError: rows is -1"
    assert "in lab" in job.failure.trace


def test_a_labkit_error_speaks_for_itself():
    job = run(failing(Unavailable("No GPU is attached", "Choose cpu")))
    assert job.failure.message == "No GPU is attached. Choose cpu"


def test_nbval_501_a_lab_that_exits_has_failed():
    assert run(failing(SystemExit(0))).state == "failed"


def test_pytorch_27600_a_failed_run_keeps_nothing_of_the_lab_alive():
    class Tensor:
        pass

    references = []

    def lab(stop):
        tensor = Tensor()
        references.append(weakref.ref(tensor))
        yield Point("a", 0, 1)
        raise MemoryError("too large")

    job = run(lab)
    gc.collect()
    assert job.state == "failed"
    assert references[0]() is None


def test_a_picture_that_cannot_be_drawn_stops_the_lab():
    def draw():
        raise OSError("no browser")

    def lab(stop):
        yield Point("a", 0, 1)
        while not stop.wait(0.01):
            yield Point("a", 0, 1)

    job = run(lab, draw)
    assert job.failure.message == "OSError: no browser"


def test_jupyterlab_12845_frames_are_paced_by_number_and_by_bytes(monkeypatch):
    """No clock: what the painter waits for is written down instead."""
    waits = []

    class Ended(Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            job.curves.add(Point("a", len(waits), 1))
            return len(waits) > 3

    sizes = iter([0, 600_000, 100, 0])
    job = Job(lambda stop: [], lambda: next(sizes))
    job._ended = Ended()
    job._paint()
    assert waits == pytest.approx([0.0, 0.2, 600_000 / job_module.FRAME_BYTES_PER_S, 0.2])
