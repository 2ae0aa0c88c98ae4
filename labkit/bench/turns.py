"""A lock that is handed on in the order of asking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

__all__ = ["Turns"]


class Turns:
    """Lets several threads take strict turns: who has just finished stands behind all who wait."""

    def __init__(self) -> None:
        self._next = 0
        self._serving = 0
        self._changed = Condition()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and hold it until the block ends."""
        with self._changed:
            ticket = self._next
            self._next += 1
            self._changed.wait_for(lambda: self._serving == ticket)
        try:
            yield
        finally:
            with self._changed:
                self._serving += 1
                self._changed.notify_all()
