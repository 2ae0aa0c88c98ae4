"""What a sample can tell: when it is large enough, whether it passes, and how sure a percentile is.

Everything here is exact for independent samples, from the binomial distribution alone. Latencies of neighbouring
requests are not independent (one full queue delays them all), so an interval inside one run is the least that the
doubt can be; repeats of the whole run say the rest.

Levels are in percent (99.0 is p99); confidence is a share (0.99).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from labkit.errors import require

__all__ = [
    "LEVELS",
    "Interval",
    "Percentile",
    "accept",
    "bootstrap",
    "highest_level",
    "minimum_samples",
    "over_allowed",
    "percentile",
]

# The percentiles that people ask for; a sample too small for one is answered with the highest that it supports.
LEVELS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
CONFIDENCE = 0.99

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the range that holds the truth at the stated confidence."""

    value: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile as the sample supports it.

    `value_ms` is the sample's own percentile. `high_ms` is the conservative one, MLPerf's early-stopping estimate: at
    99 % confidence the true percentile is no higher; verdicts use it. `low_ms` is its mirror image. `level` may be
    lower than asked for when `samples` were too few, and is `nan` (like the values) when they support none.
    """

    value_ms: float
    low_ms: float
    high_ms: float
    level: float
    samples: int

    @property
    def label(self) -> str:
        """`p99`, or `p?` when the sample supports no percentile at all."""
        return "p?" if math.isnan(self.level) else f"p{self.level:g}"

    def __str__(self) -> str:
        if math.isnan(self.level):
            return f"no percentile from {self.samples} samples ({minimum_samples(LEVELS[0])} support a median)"
        return f"{self.label} {self.value_ms:.1f} ms ({self.low_ms:.1f}..{self.high_ms:.1f}, n={self.samples})"


def accept(samples: int, over: int, level: float = 99.0, confidence: float = CONFIDENCE) -> bool:
    """Whether `over` latencies above a limit, of `samples`, prove that the limit holds at `level`.

    Early stopping as in MLPerf LoadGen: the run passes if a system that only just fails would show so few with a
    probability of at most `1 - confidence`.

    >>> accept(662, 1), accept(661, 1), accept(459, 0)
    (True, False, True)
    """
    return 0 <= over <= over_allowed(samples, level, confidence)


@lru_cache(maxsize=4096)
def over_allowed(samples: int, level: float = 99.0, confidence: float = CONFIDENCE) -> int:
    """The most latencies above a limit that `accept` lets pass; -1 if `samples` are too few to pass with none."""
    _require_level(level, confidence)
    return _largest_unlikely(samples, 1 - level / 100, 1 - confidence)


@lru_cache(maxsize=256)
def minimum_samples(level: float = 99.0, over: int = 1, confidence: float = CONFIDENCE) -> int:
    """The fewest samples that pass with `over` of them above the limit.

    >>> minimum_samples(99.0), minimum_samples(90.0)
    (662, 64)
    """
    enough = over + 1
    while not accept(enough, over, level, confidence):
        enough *= 2
    few = enough // 2
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if accept(middle, over, level, confidence) else (middle, enough)
    return enough


def highest_level(samples: int, level: float = 99.0) -> float:
    """The highest level up to `level` that `samples` support (one may lie above), or `nan`.

    >>> highest_level(1000), highest_level(661), highest_level(10)
    (99.0, 95.0, nan)
    """
    supported = [known for known in {*LEVELS, level} if known <= level and samples >= minimum_samples(known)]
    return max(supported, default=math.nan)


def percentile(latencies_ms: npt.ArrayLike, level: float = 99.0) -> Percentile:
    """The percentile at `level`, or at the highest level that the sample supports, with its 99 % bounds.

    Values are order statistics of the sample, never interpolated; misses may take part as `inf`.

    >>> percentile(range(1, 1001), 99.0)
    Percentile(value_ms=990.0, low_ms=982.0, high_ms=998.0, level=99.0, samples=1000)
    """
    _require_level(level, CONFIDENCE)
    ordered = np.sort(np.asarray(latencies_ms, dtype=np.float64))
    samples, shown = ordered.size, highest_level(ordered.size, level)
    if math.isnan(shown):
        return Percentile(math.nan, math.nan, math.nan, math.nan, samples)
    share = shown / 100
    rank = math.ceil(round(samples * share, 9))
    below = _largest_unlikely(samples, share, 1 - CONFIDENCE)
    above = over_allowed(samples, shown)
    value_ms, low_ms, high_ms = (float(ordered[index]) for index in (rank - 1, below, samples - 1 - above))
    return Percentile(value_ms, low_ms, high_ms, shown, samples)


def bootstrap(
    values: npt.ArrayLike,
    statistic: Callable[[Floats], float] = lambda sample: float(np.mean(sample)),
    *,
    confidence: float = 0.95,
    draws: int = 2_000,
    seed: int = 0,
) -> Interval:
    """A percentile bootstrap interval of any `statistic` (the mean by default); for 20 values or more."""
    sample = np.asarray(values, dtype=np.float64)
    require(sample.size >= 2, f"the sample has {sample.size} values; a bootstrap needs 2 or more", "Measure longer.")
    rng = np.random.default_rng(seed)
    drawn = [statistic(sample[rng.integers(0, sample.size, sample.size)]) for _ in range(draws)]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(statistic(sample), float(low), float(high), confidence)


@lru_cache(maxsize=4096)
def _largest_unlikely(samples: int, share: float, chance: float) -> int:
    """The largest t with P[Bin(samples, share) <= t] <= chance; -1 if there is none. Exact, in logarithms."""
    last = min(samples, math.ceil(samples * share) + 1)
    hits = np.arange(1, last + 1)
    ratios = np.log((samples - hits + 1) / hits) + math.log(share) - math.log1p(-share)
    log_chances = samples * math.log1p(-share) + np.concatenate([[0.0], np.cumsum(ratios)])
    below = np.exp(np.logaddexp.accumulate(log_chances))
    return int(np.searchsorted(below, chance, side="right")) - 1


def _require_level(level: float, confidence: float) -> None:
    require(0 < level < 100, f"level is {level}; it must be between 0 and 100 percent", "Write 99.0 for p99.")
    require(0 < confidence < 1, f"confidence is {confidence}; it must be between 0 and 1", "Write 0.99 for 99 %.")
