"""The highest rate that meets an SLO: climb geometrically to the knee, bisect it, confirm it by repeats."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from labkit.errors import require

__all__ = ["Judged", "MaxRate", "SweepPoint", "geometric_rates", "max_rate"]


class Judged(Protocol):
    """What a measurement must be able to say; `Metrics` and `Simulated` can."""

    def meets(self, slo_ms: float, level: float = 99.0, confidence: float = 0.99) -> bool:
        """Whether `level` percent of the requests meet the SLO, at this confidence."""
        ...


Measured = TypeVar("Measured", bound=Judged)


@dataclass(frozen=True, slots=True)
class SweepPoint(Generic[Measured]):
    """One measurement on the way, and whether it met the SLO."""

    rate_per_s: float
    result: Measured
    meets: bool
    confirming: bool = False


@dataclass(frozen=True, slots=True)
class MaxRate(Generic[Measured]):
    """The highest confirmed rate, 0 if even the lowest failed, and every measurement on the way.

    `limited` is False when the highest rate that was allowed still met the SLO: the true limit lies above.
    """

    rate_per_s: float
    slo_ms: float
    level: float
    limited: bool
    points: tuple[SweepPoint[Measured], ...]

    def __str__(self) -> str:
        at_least = "" if self.limited else "at least "
        return f"{at_least}{self.rate_per_s:.4g} requests/s with p{self.level:g} <= {self.slo_ms:g} ms"


def max_rate(
    measure: Callable[[float], Measured],
    slo_ms: float,
    low: float,
    high: float,
    *,
    level: float = 99.0,
    confidence: float = 0.99,
    growth: float = 1.5,
    tolerance: float = 0.03,
    confirm: int = 3,
    progress: Callable[[SweepPoint[Measured]], None] | None = None,
) -> MaxRate[Measured]:
    """Find the highest rate per second, between `low` and `high`, at which `level` percent meet `slo_ms`.

    `measure` runs the system at a rate (with a new seed each time, for the repeats to mean something). The rate grows
    by the factor `growth` until a run fails; the gap is bisected, geometrically, to `tolerance`; the best rate must
    then pass `confirm` more runs in a row, else it falls back one step of `tolerance` and tries again. MLPerf's server
    scenario searches this way. `progress` hears of each point; raise from it to give up.

    Raises `MeasureError`, from `measure(...).meets`, when the runs are too short to decide.
    """
    require(0 < low < high < math.inf, f"low is {low} and high is {high}", "Give rates with 0 < low < high.")
    require(growth > 1, f"growth is {growth}; it must be above 1", "Give 1.5, for example.")
    require(0 < tolerance < 1, f"tolerance is {tolerance}; it must be between 0 and 1", "Give 0.03 for 3 %.")
    require(confirm >= 0, f"confirm is {confirm}; it must be 0 or more", "Give 3.")
    points: list[SweepPoint[Measured]] = []

    def holds(rate_per_s: float, confirming: bool = False) -> bool:
        result = measure(rate_per_s)
        point = SweepPoint(rate_per_s, result, result.meets(slo_ms, level, confidence), confirming)
        points.append(point)
        if progress is not None:
            progress(point)
        return point.meets

    best, failed = _climb(holds, low, high, growth)
    best = _bisect(holds, best, failed, tolerance) if best and failed < math.inf else best
    rate = _confirmed(holds, best, low, tolerance, confirm)
    return MaxRate(rate, slo_ms, level, not (rate and rate >= high), tuple(points))


def geometric_rates(low: float, high: float, steps: int) -> tuple[float, ...]:
    """Rates from `low` to `high` by equal factors, for a throughput-latency curve.

    >>> geometric_rates(50.0, 400.0, 4)
    (50.0, 100.0, 200.0, 400.0)
    """
    require(0 < low < high and steps >= 2, f"low {low}, high {high}, steps {steps}", "Give 0 < low < high and 2 steps.")
    factor = (high / low) ** (1 / (steps - 1))
    return (*(round(low * factor**step, 6) for step in range(steps - 1)), high)


def _climb(holds: Callable[[float], bool], low: float, high: float, growth: float) -> tuple[float, float]:
    """The last rate that held (0: none) and the first that did not (inf: none)."""
    best, rate = 0.0, low
    while holds(rate):
        best = rate
        if rate >= high:
            return best, math.inf
        rate = min(high, rate * growth)
    return best, rate


def _bisect(holds: Callable[[float], bool], best: float, failed: float, tolerance: float) -> float:
    while failed / best > 1 + tolerance:
        middle = math.sqrt(best * failed)
        best, failed = (middle, failed) if holds(middle) else (best, middle)
    return best


def _confirmed(holds: Callable[[float, bool], bool], best: float, low: float, tolerance: float, confirm: int) -> float:
    """Fall back until `confirm` runs in a row hold; 0 below `low`, where nothing was shown to hold."""
    while best >= low and not all(holds(best, True) for _ in range(confirm)):
        best /= 1 + tolerance
    return best if best >= low else 0.0
