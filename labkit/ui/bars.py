"""One row of a live Gantt chart in bounded memory."""

from __future__ import annotations

from collections import deque
from math import isfinite, nan

import numpy as np

from labkit.errors import require
from labkit.ui.series import Curve

__all__ = ["Bars"]


class Bars:
    """The newest `capacity` bars; points come in pairs, the begin and the end of a bar at the height y.

    A curve over a whole run would draw thousands of bars as one; what is to be seen is the rhythm of the newest. It
    stands at no value now.

    >>> row = Bars(capacity=2)
    >>> for x in (0.0, 0.4, 0.5, 0.9, 1.0, 1.4, 1.5):
    ...     row.add(x, 3.0)
    >>> row.curve().x.tolist(), row.curve().y.tolist()
    ([0.5, 0.9, 1.0, 1.4], [3.0, 3.0, 3.0, 3.0])
    """

    def __init__(self, capacity: int = 32) -> None:
        require(capacity >= 1, f"capacity is {capacity}; it must be at least 1", "Give the number of bars to show.")
        self._bars: deque[tuple[float, float, float]] = deque(maxlen=capacity)
        self._begin_x = nan
        self.now = nan

    def add(self, x: float, y: float) -> None:
        """Take the begin of a bar, or the end of the one that has begun; a point that is not finite empties the row."""
        if not (isfinite(x) and isfinite(y)):
            self._begin_x = nan
            self._bars.clear()
        elif isfinite(self._begin_x):
            self._bars.append((self._begin_x, x, y))
            self._begin_x = nan
        else:
            self._begin_x = x

    def curve(self) -> Curve:
        """All bars that are kept, as pairs of points, in the order in which they began."""
        table = np.asarray(sorted(self._bars), dtype=np.float64).reshape(-1, 3)
        return Curve(table[:, :2].reshape(-1), np.repeat(table[:, 2], 2), nan)
