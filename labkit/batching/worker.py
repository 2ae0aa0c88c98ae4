"""A thread that runs batches: it asks for one when it is free, and is replaced when it dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Thread, current_thread

from labkit.batching.answering import Answering
from labkit.batching.request import Request
from labkit.batching.runner import Runner
from labkit.devices import start_computing

__all__ = ["Worker"]

_log = logging.getLogger(__name__)

Next = Callable[["Worker"], Sequence[Request] | None]
Execute = Callable[["Worker", Sequence[Request]], None]
Lost = Callable[["Worker", BaseException], None]


class Worker:
    """Calls `next_batch`, which blocks, and `execute`, until the former answers None.

    `batch` is what it runs now, `answering` gives answers beside it. If its thread is torn down (a model that raises
    SystemExit, say), `lost` is called from the dying thread and may `start` the worker again.
    """

    def __init__(self, number: int, runner: Runner, next_batch: Next, execute: Execute, lost: Lost, name: str) -> None:
        self.number = number
        self.runner = runner
        self.batch: Sequence[Request] = ()
        self._next_batch = next_batch
        self._execute = execute
        self._lost = lost
        self._name = f"{name}-worker-{number}"
        self.answering = Answering(self._name)
        self._thread: Thread | None = None

    def start(self) -> None:
        """Run in a new thread."""
        if self.runner.device == "cpu":
            thread = start_computing(self._live, self._name)
        else:
            thread = Thread(target=self._live, name=self._name, daemon=True)
            thread.start()
        # It says so itself when it begins, and may by now be dead and replaced.
        if self._thread is None:
            self._thread = thread

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end, unless it is the caller's own or, as a replacement, has not begun."""
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not current_thread():
            thread.join(timeout_s)

    def _live(self) -> None:
        self._thread = current_thread()
        try:
            while (batch := self._next_batch(self)) is not None:
                if batch:
                    self.batch = batch
                    self._execute(self, batch)
                # While it waits for the next, this thread keeps no answer alive.
                self.batch = batch = ()
        except BaseException as error:
            _log.exception("%s died", self._name)
            self._lost(self, error)
