"""One system under one open load: the latencies that were measured, or those that the queue simulation computes.

Both get the very same moments of arrival, so that their ratio says nothing about the load, only about the system.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.bench.fleet import Fleet
from labkit.bench.peers.service import BASE_MS, CAP, ROW_MS
from labkit.bench.way import Way
from labkit.errors import RunVoid
from labkit.measure import LinearCurve, accept, simulate
from labkit.measure.run import late
from labkit.workloads import Poisson

__all__ = ["CURVE", "Sample", "Window", "measured", "simulated"]

CURVE = LinearCurve(BASE_MS, ROW_MS)
# p99 is shown from 662 samples up.
ENOUGH = 700
TRIES = 3

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """Poisson arrivals at `rate_per_s` for `warmup_s`, which do not count, and then for `duration_s`, which do."""

    rate_per_s: float
    duration_s: float
    warmup_s: float
    seed: int

    @classmethod
    def enough(cls, rate_per_s: float, duration_s: float, warmup_s: float, seed: int) -> Window:
        """A window of `duration_s`, or as long as it takes to see enough requests for a p99.

        >>> Window.enough(50.0, 5.0, 1.0, seed=0).duration_s
        14.0
        """
        return cls(rate_per_s, max(duration_s, ENOUGH / rate_per_s), warmup_s, seed)

    def arrivals_s(self) -> Floats:
        """All moments of arrival, in seconds from the start of the warm-up."""
        return Poisson(self.rate_per_s).times(self.warmup_s + self.duration_s, self.seed)

    def counted(self, values: Floats) -> Floats:
        """Those of `values` (one per arrival) whose request counts."""
        return values[self.arrivals_s() >= self.warmup_s]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Latencies of all requests that count, infinite where no answer came; `void`: why they must not be used."""

    latencies_ms: Floats
    mean_batch: float = math.nan
    void: str = ""

    def percentile_ms(self, level: float) -> float:
        """An order statistic of the sample, as `labkit.measure.percentile` has it."""
        return float(np.percentile(self.latencies_ms, level, method="inverted_cdf"))

    def meets(self, slo_ms: float, level: float = 99.0, confidence: float = 0.99) -> bool:
        """Whether the sample proves, by early stopping, that `level` percent meet the SLO."""
        return accept(self.latencies_ms.size, int((self.latencies_ms > slo_ms).sum()), level, confidence)


def measured(fleet: Fleet, way: Way, window: Window) -> Sample:
    """Measure a system; a run whose generator was late is repeated, three runs in all.

    Raises `RunVoid` if the last one is late too, and `MeasureError` if the system fails.
    """
    for _ in range(TRIES):
        answer = fleet.ask(way.system, way.do, at_s=window.arrivals_s().tolist(), **way.told)
        sample = _sample(window, answer)
        if not sample.void:
            return sample
    raise RunVoid(f"{way.name} at {window.rate_per_s:.0f}/s: {sample.void}", "Close other programs and run it again.")


def simulated(window: Window) -> Sample:
    """What a perfect greedy batcher makes of the same arrivals."""
    perfect = simulate(CURVE, window.arrivals_s(), cap=CAP)
    return Sample(window.counted(perfect.latencies_ms), perfect.mean_batch)


def _sample(window: Window, answer: dict[str, Any]) -> Sample:
    latencies_ms = np.array([math.inf if ms is None else ms for ms in answer["latencies_ms"]])
    lags_ms = window.counted(np.array(answer["lags_ms"]))
    batch_rows = answer.get("batch_rows") or [math.nan]
    sample = Sample(window.counted(latencies_ms), float(np.mean(batch_rows)))
    p50_ms = sample.percentile_ms(50)
    lag_p99_ms = float(np.quantile(lags_ms, 0.99, method="higher"))
    return Sample(sample.latencies_ms, sample.mean_batch, late(lag_p99_ms, math.nan if math.isinf(p50_ms) else p50_ms))
