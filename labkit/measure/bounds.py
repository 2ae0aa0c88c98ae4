"""Lines that no batcher crosses, from the service curve alone. Class of every number here: `bound`.

For one server that takes all that waits, Poisson arrivals and S(b) = base_ms + row_ms * b.
"""

from __future__ import annotations

import math
from typing import Literal

from labkit.errors import require
from labkit.measure.curve import LinearCurve, ServiceCurve

__all__ = ["best_batch", "inoue_bound", "saturation_rate"]

NUMBER_CLASS: Literal["bound"] = "bound"


def inoue_bound(rate_per_s: float, curve: LinearCurve) -> float:
    """Upper bound on the mean latency in ms of greedy batching without a cap; within 10 % of it for most rates.

    The reference line of an ideal batcher: a good one lies at or slightly below it. `inf` from the saturation rate up.
    Source: Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching", arXiv 1912.06322.

    >>> round(inoue_bound(200.0, LinearCurve(20.0, 1.0)), 1)
    38.6
    """
    require(rate_per_s > 0, f"rate_per_s is {rate_per_s}; it must be positive", "Give a rate above 0.")
    rate, base, row = rate_per_s / 1e3, curve.base_ms, curve.row_ms
    load = rate * row
    if load >= 1:
        return math.inf
    light = (row + base) / (2 * (1 - load)) * (1 + 2 * rate * base + (1 - rate * base) / (1 + load))
    heavy = 1.5 * base / (1 - load) + row / 2 * (load + 2) / (1 - load**2)
    return min(light, heavy)


def saturation_rate(service: ServiceCurve, cap: int) -> float:
    """The highest rate per second that one server can answer with batches of at most `cap` rows.

    >>> [round(saturation_rate(LinearCurve(20.0, 1.0), cap), 1) for cap in (1, 32)]
    [47.6, 615.4]
    """
    require(cap >= 1, f"cap is {cap}; it must be at least 1", "Give a positive cap.")
    return max(1e3 * rows / service(rows) for rows in range(1, cap + 1))


def best_batch(slo_ms: float, service: ServiceCurve, cap: int) -> int:
    """The largest batch that still meets the SLO for a request that just missed one: 2 S(b) <= SLO; 0 if none does.

    Such a request waits for a whole batch and then runs in one. The rule is Nexus's (SOSP 2019).

    >>> best_batch(100.0, LinearCurve(20.0, 1.0), cap=64)
    30
    """
    require(slo_ms > 0, f"slo_ms is {slo_ms}; it must be positive", "Give the latency limit in milliseconds.")
    require(cap >= 1, f"cap is {cap}; it must be at least 1", "Give a positive cap.")
    return max((rows for rows in range(1, cap + 1) if 2 * service(rows) <= slo_ms), default=0)
