"""Is B better than A, and by how much? Paired, interleaved runs, told as a ratio with an interval.

A machine drifts: it warms up, a neighbour wakes. Runs in the order A B B A give both sides the same share of a steady
drift, both runs of a pair get the same seed (the same load), and the interval is taken over the pairs' own ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.errors import MeasureError, require

__all__ = [
    "Ratio",
    "compare",
    "ratio",
    "t_quantile",
]


@dataclass(frozen=True, slots=True)
class Ratio:
    """B divided by A: the geometric mean over the pairs, with a t interval on the logarithms."""

    value: float
    low: float
    high: float
    confidence: float
    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def null(self) -> bool:
        """Whether "no difference" is inside the interval."""
        return self.low <= 1 <= self.high

    def __str__(self) -> str:
        verdict = "no difference shown" if self.null else "a difference"
        return f"B/A = {self.value:.3f} ({self.low:.3f}..{self.high:.3f}, {len(self.a)} pairs): {verdict}"


def compare(
    run_a: Callable[[int], float],
    run_b: Callable[[int], float],
    pairs: int = 4,
    *,
    seed: int = 0,
    confidence: float = 0.95,
) -> Ratio:
    """Run A and B in turns (A B B A ...) and return the ratio of what they measure.

    `run_a` and `run_b` take a seed and return one positive number (requests per second, a latency). Give the same
    function twice for an A/A run, which must come out null, or the set-up favours one side.

    >>> str(compare(lambda seed: 2.0 + seed, lambda seed: 3.0 * (2.0 + seed)))
    'B/A = 3.000 (3.000..3.000, 4 pairs): a difference'
    """
    require(
        pairs >= 4 and pairs % 2 == 0,
        f"pairs is {pairs}; it must be even and at least 4, so that each side goes first equally often",
        "Give 4, 6, 8 or more.",
    )
    a: list[float] = []
    b: list[float] = []
    for pair in range(pairs):
        sides = [(run_a, a), (run_b, b)]
        for run, values in sides if pair % 2 == 0 else reversed(sides):
            values.append(float(run(seed + pair)))
    return ratio(a, b, confidence=confidence)


def ratio(a: Sequence[float], b: Sequence[float], *, confidence: float = 0.95) -> Ratio:
    """The ratio b/a of paired measurements: the geometric mean, and a t interval on the log ratios.

    Raises `MeasureError` when a value is not a positive number: a ratio would mean nothing then.
    """
    require(
        len(a) == len(b) >= 2, f"there are {len(a)} and {len(b)} values; pairs are needed, at least 2", "Pair the runs."
    )
    for value in (*a, *b):
        if not (math.isfinite(value) and value > 0):
            raise MeasureError(f"a run measured {value}; a ratio needs positive numbers", "Look at that run first.")
    logs = np.log(np.asarray(b, dtype=np.float64)) - np.log(np.asarray(a, dtype=np.float64))
    middle = float(logs.mean())
    half = t_quantile((1 + confidence) / 2, len(a) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(a))
    value, low, high = (math.exp(log) for log in (middle, middle - half, middle + half))
    return Ratio(value, low, high, confidence, tuple(a), tuple(b))


def t_quantile(probability: float, degrees: int) -> float:
    """Student's t quantile for whole `degrees` of freedom, so that nothing beyond numpy is needed.

    >>> round(t_quantile(0.975, 3), 4)
    3.1824
    """
    low, high = 0.0, 1.0
    while _t_inside(high, degrees) < 2 * probability - 1:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_inside(middle, degrees) < 2 * probability - 1 else (low, middle)
    return high


def _t_inside(t: float, degrees: int) -> float:
    """P[|T| <= t]: the finite sums for odd and even degrees (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    for step in range(2 + odd, degrees - 1, 2):
        term *= cosine**2 * (step - 1) / step
        total += term
    if not odd:
        return sine * total
    return 2 / math.pi * (angle + (sine * total if degrees > 1 else 0.0))
