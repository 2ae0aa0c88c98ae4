"""What is known of the service time S(b), learned from executed batches.

A fitted line through a history of one batch size means nothing: any slope fits one point. So this model fits nothing.
It assumes only what holds for every batched computation: S(b) never falls as b grows, and S(b)/b never rises. From
these, each size that was seen bounds every other size from both sides:

    seen S(a), a <= b:   S(a)        <= S(b) <= S(a) * b / a
    seen S(a), a >= b:   S(a) * b/a  <= S(b) <= S(a)

Work is dropped only if even the lower bound is too slow, and started early enough for the upper bound. A history that
says little gives wide bounds, and wide bounds drop nothing.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque

__all__ = ["ServiceModel"]

_WINDOW = 32
_HIGH_QUANTILE = 0.9
_MIN_SEEN = 3


class _Recent:
    """The newest durations of one batch size, in order of time and in order of size."""

    __slots__ = ("_by_time", "_sorted")

    def __init__(self) -> None:
        self._by_time: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        if len(self._by_time) == _WINDOW:
            self._sorted.remove(self._by_time.popleft())
        self._by_time.append(seconds)
        insort(self._sorted, seconds)

    @property
    def count(self) -> int:
        return len(self._sorted)

    @property
    def fastest_s(self) -> float:
        return self._sorted[0]

    @property
    def slow_s(self) -> float:
        return self._sorted[math.ceil(_HIGH_QUANTILE * len(self._sorted)) - 1]

    @property
    def median_s(self) -> float:
        return self._sorted[len(self._sorted) // 2]


class ServiceModel:
    """Bounds on S(b) from the newest 32 batches of each size.

    >>> model = ServiceModel()
    >>> for _ in range(3): model.observe(1, 0.021)
    >>> model.low_s(32), round(model.high_s(32), 3)   # seen alone, S(1) says little about S(32)
    (0.021, 0.672)
    >>> for _ in range(3): model.observe(32, 0.052)
    >>> round(model.low_s(16), 3), round(model.high_s(16), 3)
    (0.026, 0.052)
    """

    def __init__(self) -> None:
        self._sizes: dict[int, _Recent] = {}

    def observe(self, rows: int, seconds: float) -> None:
        """Learn that a batch of `rows` took `seconds`."""
        self._sizes.setdefault(rows, _Recent()).add(seconds)

    def low_s(self, rows: int) -> float:
        """Seconds that a batch of `rows` takes at the very least (0 if nothing is known).

        A size counts from its third batch on: the first of a size is often slow, and slow is no lower bound.
        """
        known = ((size, seen) for size, seen in self._sizes.items() if seen.count >= _MIN_SEEN)
        least_s = max((seen.fastest_s * min(1.0, rows / size) for size, seen in known), default=0.0)
        # Where sizes contradict one another (one was seen only while the machine was busy), the faster is right.
        proven_s = (seen.fastest_s * max(1.0, rows / size) for size, seen in self._sizes.items())
        return min(least_s, *proven_s) if least_s else 0.0

    def high_s(self, rows: int) -> float:
        """Seconds that a batch of `rows` takes at most, nine times out of ten (infinite if nothing is known)."""
        return min((seen.slow_s * max(1.0, rows / size) for size, seen in self._sizes.items()), default=math.inf)

    def expected_s(self, rows: int) -> float:
        """A typical time for `rows`: the median of the nearest size seen, scaled halfway between the two bounds."""
        if not self._sizes:
            return 0.0
        size = min(self._sizes, key=lambda seen: abs(seen - rows))
        return self._sizes[size].median_s * (1.0 + rows / size) / 2
