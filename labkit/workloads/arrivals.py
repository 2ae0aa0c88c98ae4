"""Arrival processes: when the requests of an open load are meant to be sent.

Each process is a small frozen record with one verb, `times(duration_s, seed)`: the send times in seconds from the
start, sorted, all below `duration_s`. The same seed gives the same times, and a longer run begins with the times of a
shorter one, so two systems can be given exactly the same load.

>>> Constant(rate_per_s=4).times(1.0).tolist()
[0.0, 0.25, 0.5, 0.75]
>>> OnOff(rate_per_s=100, on_s=1, off_s=3).mean_rate_per_s
25.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from labkit.errors import require

__all__ = ["Arrivals", "Constant", "FloatArray", "Gamma", "OnOff", "Poisson", "Replay"]

FloatArray: TypeAlias = npt.NDArray[np.float64]


@runtime_checkable
class Arrivals(Protocol):
    """Anything that says when requests are meant to be sent."""

    def times(self, duration_s: float, seed: int = 0) -> FloatArray:
        """Send times in seconds from the start, sorted, all in `[0, duration_s)`; shape `[requests]`."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """One request every `1 / rate_per_s` seconds, the first at once. The seed changes nothing."""

    rate_per_s: float

    def __post_init__(self) -> None:
        _require_positive("rate_per_s", self.rate_per_s)

    def times(self, duration_s: float, seed: int = 0) -> FloatArray:
        """Send times in seconds from the start; shape `[requests]`."""
        _require_positive("duration_s", duration_s)
        at_s = np.arange(math.ceil(duration_s * self.rate_per_s) + 1) / self.rate_per_s
        return at_s[at_s < duration_s]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent users: gaps are exponential, with mean `1 / rate_per_s`."""

    rate_per_s: float

    def __post_init__(self) -> None:
        _require_positive("rate_per_s", self.rate_per_s)

    def times(self, duration_s: float, seed: int = 0) -> FloatArray:
        """Send times in seconds from the start; shape `[requests]`."""
        _require_positive("duration_s", duration_s)
        rng = np.random.default_rng(seed)
        return _until(duration_s, self.rate_per_s, lambda count: rng.exponential(1 / self.rate_per_s, count))


@dataclass(frozen=True, slots=True)
class Gamma:
    """Bursts: gaps are gamma distributed with mean `1 / rate_per_s` and coefficient of variation `cv`.

    `cv` 1 is Poisson, below 1 is smoother, above 1 comes in bursts (a code-completion service has been seen at 13).
    The first gap is drawn from the equilibrium distribution: a run starts at a moment like any other. To start right
    after an arrival would add `(cv**2 - 1) / 2` requests to each run, 84 of them at `cv` 13.
    """

    rate_per_s: float
    cv: float

    def __post_init__(self) -> None:
        _require_positive("rate_per_s", self.rate_per_s)
        require(0.01 <= self.cv <= 100, f"cv is {self.cv}; it must be in 0.01..100", "Use Constant for even spacing.")

    def times(self, duration_s: float, seed: int = 0) -> FloatArray:
        """Send times in seconds from the start; shape `[requests]`."""
        _require_positive("duration_s", duration_s)
        rng = np.random.default_rng(seed)
        shape, scale_s = self.cv**-2, self.cv**2 / self.rate_per_s
        # The gap that a random moment falls into is a length-biased one (gamma with shape + 1), cut at a random place.
        first_s = rng.uniform() * rng.gamma(shape + 1, scale_s)
        return _until(duration_s, self.rate_per_s, lambda count: rng.gamma(shape, scale_s, count), first_s)


@dataclass(frozen=True, slots=True)
class OnOff:
    """Poisson arrivals at `rate_per_s` for `on_s` seconds, then none for `off_s` seconds, and so on; it starts on."""

    rate_per_s: float
    on_s: float
    off_s: float

    def __post_init__(self) -> None:
        _require_positive("rate_per_s", self.rate_per_s)
        _require_positive("on_s", self.on_s)
        require(
            math.isfinite(self.off_s) and self.off_s >= 0,
            f"off_s is {self.off_s}; it must be a number of seconds, 0 or more",
            "Give the length of the silence.",
        )

    @property
    def mean_rate_per_s(self) -> float:
        """Requests per second over whole cycles."""
        return self.rate_per_s * self.on_s / (self.on_s + self.off_s)

    def times(self, duration_s: float, seed: int = 0) -> FloatArray:
        """Send times in seconds from the start; shape `[requests]`."""
        _require_positive("duration_s", duration_s)
        cycle_s = self.on_s + self.off_s
        whole, rest_s = divmod(duration_s, cycle_s)
        on_time_s = whole * self.on_s + min(rest_s, self.on_s)
        # A Poisson process on a clock that stands still while the source is silent, then read on the wall clock.
        lit_s = Poisson(self.rate_per_s).times(on_time_s, seed)
        at_s = lit_s + np.floor(lit_s / self.on_s) * self.off_s
        return at_s[at_s < duration_s]


@dataclass(frozen=True, slots=True)
class Replay:
    """Send times that are given, for example those of a recorded trace. The seed changes nothing."""

    at_s: tuple[float, ...]

    def __post_init__(self) -> None:
        times_s = np.asarray(self.at_s, dtype=np.float64)
        require(
            bool(np.all(np.isfinite(times_s)) and np.all(times_s >= 0) and np.all(np.diff(times_s) >= 0)),
            "at_s has times that are negative, not finite or not in order",
            "Give seconds from the start, sorted.",
        )

    @classmethod
    def of(cls, at_s: Iterable[float]) -> Replay:
        """Replay any iterable of times, a numpy array for example.

        >>> Replay.of(np.array([0.5, 0.1])).at_s
        (0.1, 0.5)
        """
        return cls(tuple(sorted(float(time_s) for time_s in at_s)))

    def times(self, duration_s: float, seed: int = 0) -> FloatArray:
        """Send times in seconds from the start; shape `[requests]`."""
        _require_positive("duration_s", duration_s)
        at_s = np.asarray(self.at_s, dtype=np.float64)
        return at_s[at_s < duration_s]


def _until(
    duration_s: float, rate_per_s: float, draw: Callable[[int], FloatArray], first_s: float | None = None
) -> FloatArray:
    """Add up gaps, block by block, until the sum passes `duration_s`; the first gap may be given."""
    block = int(duration_s * rate_per_s) + 64
    gaps_s = draw(block) if first_s is None else np.append(first_s, draw(block))
    while (at_s := np.cumsum(gaps_s))[-1] < duration_s:
        gaps_s = np.append(gaps_s, draw(block))
    return at_s[at_s < duration_s]


def _require_positive(name: str, value: float) -> None:
    require(
        math.isfinite(value) and value > 0, f"{name} is {value}; it must be a positive number", "Give a value above 0."
    )
