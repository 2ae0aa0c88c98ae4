"""How long a job may take before its worker counts as hung.

The limit is max(floor, factor * p99), where p99 is estimated as mean + 4 deviations, both exponentially weighted, as
TCP does for its timeouts (Jacobson and Karels, 1988). Jobs are told apart by their layers and by the power of two of
their size. The first job of its kind in a worker has all the time in the world, or at least `first_call_s`: kernels
are compiled then, caches are filled, and a limit learned elsewhere would be wrong.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from labkit.errors import require

__all__ = ["Expectations", "Patience"]

_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of waiting, in seconds.

    A job may take `max(floor_s, factor * p99)`, the first of its kind `first_call_s`, twice as long at each retry.
    Layers may take `load_s` to load. A worker without work is asked for a sign of life after `ping_s` and has
    `silent_s` to give it. A process that works gives one ten times a second, and is taken for frozen after `frozen_s`
    without: long, because code that holds the interpreter's lock silences it.
    """

    floor_s: float = 0.5
    factor: float = 8.0
    first_call_s: float = 30.0
    load_s: float = 60.0
    ping_s: float = 0.2
    silent_s: float = 0.6
    frozen_s: float = 10.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            require(value > 0, f"{name} is {value}; it must be positive", "Give seconds above 0.")

    @property
    def shortest_s(self) -> float:
        """The shortest of all limits: nothing that begins now is due before."""
        return min(self.floor_s, self.first_call_s, self.load_s, self.ping_s, self.silent_s, self.frozen_s)


@dataclass(slots=True)
class _Spread:
    """Exponentially weighted mean and mean deviation."""

    mean_s: float
    deviation_s: float

    def add(self, seconds: float) -> None:
        self.deviation_s += _WEIGHT * (abs(seconds - self.mean_s) - self.deviation_s)
        self.mean_s += _WEIGHT * (seconds - self.mean_s)

    @property
    def p99_s(self) -> float:
        return self.mean_s + 4 * self.deviation_s


class Expectations:
    """What jobs have taken so far, by kind.

    >>> expectations = Expectations(Patience())
    >>> expectations.limit_s("decode", first=True), expectations.limit_s("decode", first=False)
    (30.0, 30.0)
    >>> for _ in range(50): expectations.add("decode", 0.1)
    >>> round(expectations.limit_s("decode", first=False), 2)
    0.8
    """

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._spreads: dict[Hashable, _Spread] = {}

    def add(self, kind: Hashable, seconds: float) -> None:
        """Note that a job of this kind took so long."""
        known = self._spreads.get(kind)
        if known is None:
            self._spreads[kind] = _Spread(seconds, seconds / 2)
        else:
            known.add(seconds)

    def limit_s(self, kind: Hashable, *, first: bool, retries: int = 0) -> float:
        """How long the next one may take; `first` for its worker's first of this kind."""
        known = self._spreads.get(kind)
        learned_s = self.patience.factor * known.p99_s if known else 0.0
        floor_s = self.patience.first_call_s if first or known is None else self.patience.floor_s
        limit_s: float = max(floor_s, learned_s) * 2**retries
        return limit_s
