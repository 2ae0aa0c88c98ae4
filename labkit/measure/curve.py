"""S(b): how long a batch of b rows takes. The one curve that decides what batching can give.

>>> curve = LinearCurve(base_ms=20.0, row_ms=1.0)
>>> curve(1), curve(32)
(21.0, 52.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from labkit.errors import require

__all__ = ["LinearCurve", "MeasuredCurve", "ServiceCurve"]

# Rows in a batch -> milliseconds.
ServiceCurve: TypeAlias = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class LinearCurve:
    """S(b) = `base_ms` + `row_ms` * b: a fixed cost per batch and a cost per row."""

    base_ms: float
    row_ms: float

    def __post_init__(self) -> None:
        for name, value in (("base_ms", self.base_ms), ("row_ms", self.row_ms)):
            require(
                math.isfinite(value) and value >= 0,
                f"{name} is {value}; it must be 0 or more",
                "Measure the curve anew.",
            )

    def __call__(self, rows: int) -> float:
        """Milliseconds for a batch of `rows`."""
        return self.base_ms + self.row_ms * rows

    @classmethod
    def fit(cls, rows: Sequence[int], times_ms: Sequence[float]) -> LinearCurve:
        """The line of least squares through measured points; a negative part is cut to 0.

        Two different batch sizes are the least: from one size alone, base and slope cannot be told apart.

        >>> LinearCurve.fit([1, 2, 4], [21.0, 22.0, 24.0]).base_ms.__round__(6)
        20.0
        """
        _require_points(rows, times_ms)
        row_ms, base_ms = np.polyfit(np.asarray(rows, dtype=np.float64), np.asarray(times_ms, dtype=np.float64), 1)
        return cls(max(0.0, float(base_ms)), max(0.0, float(row_ms)))


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """S(b) as measured at some batch sizes, straight lines between them, and the last line continued."""

    rows: tuple[int, ...]
    times_ms: tuple[float, ...]

    def __post_init__(self) -> None:
        _require_points(self.rows, self.times_ms)
        require(
            list(self.rows) == sorted(set(self.rows)),
            f"the batch sizes {self.rows} are not in ascending order",
            "Sort them, each size once.",
        )

    def __call__(self, rows: int) -> float:
        """Milliseconds for a batch of `rows`."""
        if rows > self.rows[-1]:
            (before, last), (before_ms, last_ms) = self.rows[-2:], self.times_ms[-2:]
            return last_ms + (last_ms - before_ms) * (rows - last) / (last - before)
        return float(np.interp(rows, self.rows, self.times_ms))


def _require_points(rows: Sequence[int], times_ms: Sequence[float]) -> None:
    require(
        len(rows) == len(times_ms) and len(set(rows)) >= 2,
        f"there are {len(rows)} batch sizes ({len(set(rows))} different) and {len(times_ms)} times",
        "Measure at least two different batch sizes.",
    )
