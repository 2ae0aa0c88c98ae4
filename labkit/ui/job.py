"""One live run of a lab: a thread that runs it and a thread that draws it.

The lab gets a thread of its own, so that no cell blocks and nothing of it depends on which thread a button's callback
runs on. Drawing has another, so that the lab never waits for a browser, and the last points before a long silence are
shown as promptly as any.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Event, Thread
from time import perf_counter
from typing import Literal

from labkit.errors import LabkitError
from labkit.labs import Note, Point
from labkit.ui.curves import Curves

__all__ = ["Failure", "Job", "State"]

State = Literal["running", "stopping", "done", "stopped", "failed"]

FRAME_S = 0.2  # at most five frames a second,
FRAME_BYTES_PER_S = 150_000  # and fewer when they are so large that a remote browser would fall behind


@dataclass(frozen=True, slots=True)
class Failure:
    """What stopped a run: the message for a person and the traceback, both as text.

    The exception itself is not kept: its frames would keep alive every tensor that they name.
    """

    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Put `error`, which is being handled, into words."""
        said = str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"
        return cls(said, "".join(traceback.format_exception(error)))


class Job:
    """Runs `lab(stop)` and calls `draw()` when there is something new, and once more at the end.

    `draw` returns how many bytes it sent, which paces the frames. `stop()` asks the lab to end and takes no item from
    it any more; a generator is closed, so that its `with` and `finally` blocks run.

    >>> job = Job(lambda stop: [Point("p99", 1.0, 41.0)], draw=lambda: 0)
    >>> job.start()
    >>> job.join(timeout_s=5.0), job.state, job.curves.points
    (True, 'done', 1)
    """

    def __init__(
        self, lab: Callable[[Event], Iterable[Point | Note]], draw: Callable[[], int], curves: Curves | None = None
    ) -> None:
        self._lab = lab
        self._draw = draw
        self._stop = Event()
        self._ended = Event()
        self._worker = Thread(target=self._work, name="labkit-lab", daemon=True)
        self._painter = Thread(target=self._paint, name="labkit-draw", daemon=True)
        self.curves = curves or Curves()
        self.failure: Failure | None = None

    @property
    def state(self) -> State:
        """What the run is doing, or how it has ended."""
        if not self._ended.is_set():
            return "stopping" if self._stop.is_set() else "running"
        if self.failure:
            return "failed"
        return "stopped" if self._stop.is_set() else "done"

    @property
    def ended(self) -> bool:
        """Whether the lab has ended, in whichever way."""
        return self._ended.is_set()

    def start(self) -> None:
        """Begin to run and to draw; returns at once."""
        self._worker.start()
        self._painter.start()

    def stop(self) -> None:
        """Ask the lab to end; returns at once."""
        self._stop.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the lab has ended and its last frame is drawn; whether that came within `timeout_s`."""
        until = perf_counter() + timeout_s if timeout_s is not None else None
        for thread in (self._worker, self._painter):
            thread.join(None if until is None else max(0.0, until - perf_counter()))
        return not (self._worker.is_alive() or self._painter.is_alive())

    def _work(self) -> None:
        try:
            self._take(self._lab(self._stop))
        except BaseException as error:  # also SystemExit: whatever ends a lab must reach the person
            self.failure = Failure.of(error)
        finally:
            self._ended.set()

    def _take(self, items: Iterable[Point | Note]) -> None:
        try:
            for item in items:
                if self._stop.is_set():
                    return
                self.curves.add(item)
        finally:
            close = getattr(items, "close", None)
            if close:
                close()

    def _paint(self) -> None:
        pause_s, drawn = 0.0, -1
        try:
            while not self._ended.wait(pause_s):
                pause_s, version = FRAME_S, self.curves.version
                if version != drawn:
                    pause_s = max(FRAME_S, self._draw() / FRAME_BYTES_PER_S)
                drawn = version
            self._draw()
        except Exception as error:  # a picture that cannot be drawn must not leave a lab running unseen
            self.failure = self.failure or Failure.of(error)
            self._stop.set()
