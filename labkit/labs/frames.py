"""The rhythm of a live lab: four frames a second, what was turned between them, and the rows of the last seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Generic, Protocol, TypeVar

from labkit.labs.dials import Dials

__all__ = ["FRAME_S", "Ended", "Recent", "frames"]

Settings = TypeVar("Settings")
Row = TypeVar("Row", bound="Ended")

FRAME_S = 0.25


def frames(dials: Dials[Settings], version: int, stop: Event) -> Iterator[tuple[float, Settings | None]]:
    """When each frame is, until `stop`; with the settings if they have been turned since the frame before.

    `version` is that of the settings which the lab began with. It takes it before it builds an engine, which may last
    seconds in which somebody turns something.
    """
    while not stop.wait(FRAME_S):
        seen, version = version, dials.version
        yield time.perf_counter(), dials.get() if version != seen else None


class Ended(Protocol):
    """A row of an engine's records."""

    @property
    def finished_s(self) -> float:
        """When it was over."""
        ...


class Recent(Generic[Row]):
    """The rows that ended within the last `window_s` seconds; `since` reads a table from a cursor on.

    >>> from labkit.records import Recorder
    >>> steps = Recent(Recorder().steps_since, window_s=10.0)
    >>> steps.read(now_s=100.0), steps.rows
    ([], [])
    """

    def __init__(self, since: Callable[[int], tuple[list[Row], int]], window_s: float) -> None:
        self._since, self._window_s = since, window_s
        self._cursor = 0
        self.rows: list[Row] = []

    def read(self, now_s: float) -> list[Row]:
        """Read on in the table, and forget what is too old; return what is new."""
        new, self._cursor = self._since(self._cursor)
        self.rows = [row for row in self.rows + new if row.finished_s >= now_s - self._window_s]
        return new
