"""Answers one batch while the next one runs.

Between two batches a device is idle, so a worker does there only what the next batch needs. Rows of the records,
futures and their callbacks of the last batch can wait for a moment in which the model has let go of the interpreter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread

__all__ = ["Answering"]

_log = logging.getLogger(__name__)

Answer = Callable[[], None]


class Answering:
    """A thread that gives one batch's answers at a time, in order; it starts with the first that are handed to it.

    `rows` is how many answers it is giving now.
    """

    def __init__(self, name: str) -> None:
        self.rows = 0
        self._name = f"{name}-answers"
        self._work: SimpleQueue[Answer | None] = SimpleQueue()
        self._idle = Lock()
        self._thread: Thread | None = None

    def hand(self, answer: Answer, rows: int) -> None:
        """Have `answer` called. Waits for the answers before it: a slow callback must not let batches pile up."""
        self._idle.acquire()
        self.rows = rows
        if self._thread is None:
            self._thread = Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()
        self._work.put(answer)

    def stop(self) -> None:
        """End the thread after the answers that it has."""
        self._work.put(None)

    def _live(self) -> None:
        while (answer := self._work.get()) is not None:
            try:
                answer()
            except BaseException:
                _log.exception("%s: the answers of a batch were not given", self._name)
            finally:
                # While it waits for the next, this thread keeps no answer alive.
                del answer
                self.rows = 0
                self._idle.release()
