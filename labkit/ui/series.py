"""One series of a live chart in bounded memory."""

from __future__ import annotations

from math import isfinite, nan
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labkit.errors import require

__all__ = ["Curve", "Series"]

Floats = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """A series as it is drawn: `x` and `y`, float64 of one length, and what it stands at now (`nan`: not known)."""

    x: Floats
    y: Floats
    now: float


class Series:
    """Points in the order of arrival, never more than `capacity` of them, with every extreme kept.

    While they fit, all points are kept as they are. Then each bucket of `span` arrivals is reduced to its lowest and
    its highest point, and whenever the buckets fill the capacity, neighbours are merged and `span` doubles. The
    resolution is even over the whole run, a spike is never thinned away, and a point costs constant time. Points that
    are not finite (a percentile that is not known) are left out of the curve, but `now` tells of them.

    >>> series = Series(capacity=8)
    >>> for second in range(1000):
    ...     series.add(second, 99.0 if second == 500 else 1.0)
    >>> curve = series.curve()
    >>> len(curve.x) <= 8, float(curve.y.max()), series.count
    (True, 99.0, 1000)
    """

    def __init__(self, capacity: int = 300) -> None:
        require(
            capacity >= 8 and capacity % 4 == 0,
            f"capacity is {capacity}; it must be a multiple of 4 from 8 up",
            "Buckets are merged in fours.",
        )
        # The newest bucket shows up to three points (lowest, highest, last) before it is full.
        self._room = capacity - 4
        self._span = 2
        self._kept: list[tuple[float, float]] = []
        self._bucket: list[tuple[float, float]] = []
        self._in_bucket = 0
        self._last = (nan, nan)
        self.count = 0
        self.now = nan

    def add(self, x: float, y: float) -> None:
        """Take one point."""
        self.now = y if isfinite(y) else nan
        if not (isfinite(x) and isfinite(y)):
            return
        self.count += 1
        self._in_bucket += 1
        self._bucket = _extremes([*self._bucket, (x, y)])
        self._last = (x, y)
        if self._in_bucket == self._span:
            self._close_bucket()

    def curve(self) -> Curve:
        """What is kept, sorted by `x`."""
        points = [*self._kept, *self._bucket]
        if self.count and points[-1] != self._last:
            points.append(self._last)
        table = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        table = table[np.argsort(table[:, 0], kind="stable")]
        return Curve(table[:, 0].copy(), table[:, 1].copy(), self.now)

    def _close_bucket(self) -> None:
        self._kept += self._bucket
        self._bucket, self._in_bucket = [], 0
        if len(self._kept) >= self._room:
            kept = self._kept
            self._kept = [point for start in range(0, len(kept), 4) for point in _extremes(kept[start : start + 4])]
            self._span *= 2


def _extremes(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lowest and the highest of `points`, in the order in which they came; at most two points."""
    if len(points) <= 2:
        return points
    low = min(range(len(points)), key=lambda index: points[index][1])
    high = max(range(len(points)), key=lambda index: points[index][1])
    if low == high:  # all equal: the first and the last say as much as any
        return [points[0], points[-1]]
    return [points[index] for index in sorted((low, high))]
