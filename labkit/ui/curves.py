"""Everything that a lab has yielded so far, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import isfinite
from threading import Lock

from labkit.labs import Note, Point
from labkit.ui.bars import Bars
from labkit.ui.chart import Chart
from labkit.ui.series import Curve, Series

__all__ = ["Curves"]


class Curves:
    """Sorts a lab's points into series, and rows of bars for `charts` of those; one thread adds, any thread reads.

    >>> curves = Curves()
    >>> for item in (Note("Measuring"), Point("p99", 1.0, 41.0), Point("p99", 2.0, 43.0)):
    ...     curves.add(item)
    >>> curves.note, curves.points, curves.newest()
    ('Measuring', 2, {'p99': 43.0})
    """

    def __init__(self, charts: Iterable[Chart] = (), capacity: int = 300) -> None:
        self._capacity = capacity
        self._bars = tuple(chart for chart in charts if chart.bars)
        self._series: dict[str, Series | Bars] = {}
        self._notes: deque[str] = deque(maxlen=20)
        self._lock = Lock()
        self.points = 0
        self.version = 0

    def add(self, item: Point | Note) -> None:
        """Take what the lab has yielded."""
        with self._lock:
            self.version += 1
            if isinstance(item, Note):
                self._notes.append(item.text)
                return
            self.points += 1
            if item.series not in self._series:
                self._series[item.series] = self._made(item.series)
            self._series[item.series].add(item.x, item.y)

    def _made(self, name: str) -> Series | Bars:
        return Bars() if any(chart.takes(name) for chart in self._bars) else Series(self._capacity)

    @property
    def note(self) -> str:
        """What the lab said last."""
        return self._notes[-1] if self._notes else ""

    def notes(self) -> tuple[str, ...]:
        """What the lab has said, oldest first; at most the newest twenty lines."""
        with self._lock:
            return tuple(self._notes)

    def snapshot(self) -> dict[str, Curve]:
        """All series as they are drawn, in the order in which they first appeared."""
        with self._lock:
            return {name: series.curve() for name, series in self._series.items()}

    def newest(self) -> dict[str, float]:
        """What each series stands at; one that is not known now is left out."""
        with self._lock:
            return {name: series.now for name, series in self._series.items() if isfinite(series.now)}
