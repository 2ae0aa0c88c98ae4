"""A queue in front of one batching server, simulated batch by batch. A model, not a measurement, and it says so.

It knows the service curve and the policy, and nothing of threads, copies or noise: what a perfect implementation
would show. Its results carry `number_class = "modelled"`.

>>> from labkit.measure.curve import LinearCurve
>>> from labkit.workloads import Poisson
>>> crowd = Poisson(rate_per_s=200).times(duration_s=500, seed=1)
>>> greedy = simulate(LinearCurve(20.0, 1.0), crowd, cap=32)
>>> round(greedy.percentile_ms(50)), round(greedy.percentile_ms(99)), round(greedy.mean_batch)
(39, 55, 5)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labkit.errors import require
from labkit.measure.curve import ServiceCurve
from labkit.measure.metrics import NumberClass, decide
from labkit.measure.statistics import CONFIDENCE

__all__ = ["Simulated", "simulate"]


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """What the modelled server did: a latency per request (in order of arrival), a size and a start per batch."""

    latencies_ms: npt.NDArray[np.float64]
    batch_rows: npt.NDArray[np.int64]
    busy_share: float
    achieved_per_s: float
    number_class: NumberClass = "modelled"

    @property
    def mean_ms(self) -> float:
        """Mean latency."""
        return float(self.latencies_ms.mean())

    @property
    def mean_batch(self) -> float:
        """Rows per batch, E[B]."""
        return float(self.batch_rows.mean())

    def percentile_ms(self, level: float) -> float:
        """The percentile of latency at `level` percent: an order statistic, no interval (simulate more instead)."""
        return float(np.percentile(self.latencies_ms, level, method="inverted_cdf"))

    def meets(self, slo_ms: float, level: float = 99.0, confidence: float = CONFIDENCE) -> bool:
        """Whether the modelled latencies prove that `level` percent meet the SLO, by the rule for measured ones."""
        return decide(self.latencies_ms.size, int((self.latencies_ms > slo_ms).sum()), level, confidence)


def simulate(
    service: ServiceCurve, arrivals_s: npt.ArrayLike, *, cap: int | None = 32, wait_ms: float = 0.0
) -> Simulated:
    """Serve the requests that arrive at `arrivals_s` (sorted) in order of arrival, in batches of at most `cap` rows.

    The batch is formed when it starts. `wait_ms` 0 is greedy: a free server takes what waits. Above 0 it starts when
    the batch is full or when the oldest request has waited `wait_ms`. `cap` 1 is no batching, None no cap.
    """
    require(cap is None or cap >= 1, f"cap is {cap}; it must be at least 1", "Give a positive cap, or None.")
    require(wait_ms >= 0, f"wait_ms is {wait_ms}; it must be 0 or more", "Give 0 for greedy batching.")
    at_ms = np.asarray(arrivals_s, dtype=np.float64) * 1e3
    require(at_ms.size > 0 and bool(np.all(np.diff(at_ms) >= 0)), "arrivals_s is empty or not sorted", "Sort it.")
    starts_ms, ends_ms, rows = _serve(service, at_ms.tolist(), cap or at_ms.size, wait_ms)
    finished_ms = np.repeat(ends_ms, rows)
    span_ms = ends_ms[-1] - at_ms[0]
    return Simulated(
        latencies_ms=finished_ms - at_ms,
        batch_rows=rows,
        busy_share=float((ends_ms - starts_ms).sum() / span_ms),
        achieved_per_s=1e3 * at_ms.size / float(span_ms),
    )


def _serve(
    service: ServiceCurve, at_ms: list[float], cap: int, wait_ms: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """One turn per batch: when it starts, when it ends, how many rows it takes."""
    times_ms: dict[int, float] = {}
    batches: list[tuple[float, float, int]] = []
    first, free_ms = 0, -math.inf
    while first < len(at_ms):
        full_ms = at_ms[first + cap - 1] if first + cap <= len(at_ms) else math.inf
        start_ms = max(free_ms, min(at_ms[first] + wait_ms, full_ms))
        rows = min(cap, bisect_right(at_ms, start_ms, first) - first)
        free_ms = start_ms + times_ms.setdefault(rows, service(rows))
        batches.append((start_ms, free_ms, rows))
        first += rows
    starts_ms, ends_ms, sizes = zip(*batches, strict=True)
    return np.array(starts_ms), np.array(ends_ms), np.array(sizes, dtype=np.int64)
