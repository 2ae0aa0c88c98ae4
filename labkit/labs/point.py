"""What a lab yields: one point of one series."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Point"]


@dataclass(frozen=True, slots=True)
class Point:
    """One value `y` at `x` in the series named `series`; the chart says the units.

    A `y` that is `nan` means "not known now" (a p99 of too few samples): it is not drawn, and not told as the newest.

    >>> Point("p99", x=2.5, y=41.0)
    Point(series='p99', x=2.5, y=41.0)
    """

    series: str
    x: float
    y: float
