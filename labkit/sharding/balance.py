"""When to move a boundary: pure decisions from measured times, with nothing moved here.

The time of a layer on a stage is modelled as base[layer] * drift[stage]. Both are exponentially weighted: what all
layers of a stage share is the stage's drift (its device became slower), what one layer has for itself is that layer's
base. So a layer that leaves a slow device is expected to be fast again, which per-stage times alone could not tell.

A move is made when it promises more than `gain` for `windows` windows in a row, the last measurement agrees with the
weighted one (the change is over, not under way), and what it gains within `horizon_s` pays for moving the weights.
Then comes a cooldown. This is what keeps noise from moving anything: Petals' servers, which move on one look at their
throughputs, are known to flap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from labkit.errors import require

__all__ = ["Balancer", "Balancing", "Window", "best_boundaries"]

Floats: TypeAlias = npt.NDArray[np.float64]

_BASE_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class Balancing:
    """Settings. A window ends when each stage has done `window_jobs`; `weight` is that of the newest window."""

    gain: float = 0.10
    windows: int = 3
    cooldown: int = 5
    horizon_s: float = 60.0
    window_jobs: int = 16
    weight: float = 0.5
    settled: float = 0.05

    def __post_init__(self) -> None:
        for name in ("gain", "weight", "settled"):
            value = getattr(self, name)
            require(0 < value <= 1, f"{name} is {value}; it must lie in (0, 1]", "Give a share.")
        for name in ("windows", "window_jobs"):
            value = getattr(self, name)
            require(1 <= value <= 1024, f"{name} is {value}; it must lie in 1..1024", "Give a count.")
        require(self.cooldown >= 0, f"cooldown is {self.cooldown}; it must not be negative", "Give windows.")
        require(self.horizon_s > 0, f"horizon_s is {self.horizon_s}; it must be positive", "Give seconds.")


@dataclass(frozen=True, slots=True)
class Window:
    """What a window has measured: for each stage the mean seconds of each of its layers, or of all of them together."""

    layer_s: tuple[tuple[float, ...], ...]
    replicas: tuple[int, ...]


class Balancer:
    """Follows the layers' times and says when other boundaries are worth a move.

    `layer_bytes` are the layers' weights, which a move has to load at `load_bytes_per_s`. `base_s` are times known
    beforehand (from a profile); without them the first window sets them.
    """

    def __init__(
        self,
        settings: Balancing,
        boundaries: Sequence[int],
        layer_bytes: Sequence[int],
        base_s: Sequence[float] | None = None,
    ) -> None:
        self.settings = settings
        self.boundaries = tuple(boundaries)
        self.load_bytes_per_s = 1e9
        self.base_s: Floats | None = None if base_s is None else np.array(base_s, float)
        self._bytes = np.array(layer_bytes, float)
        self._drift = np.ones(len(self.boundaries) - 1)
        self._latest = self._drift.copy()
        self._streak = 0
        self._rest = 0

    def observe(self, window: Window) -> tuple[int, ...] | None:
        """Take in a window; return the boundaries to move to, or None to stay."""
        self._learn(window)
        self._rest = max(0, self._rest - 1)
        best, gain = self._best(np.array(window.replicas, float))
        self._streak = self._streak + 1 if gain > self.settings.gain else 0
        if self._rest or self._streak < self.settings.windows or not self._settled():
            return None
        return best if gain * self.settings.horizon_s > self._move_s(best) else None

    def adopt(self, boundaries: Sequence[int], stages: Sequence[int] | None = None) -> None:
        """Note that the model is cut so from now on; `stages` are the old numbers of those that are left."""
        self.boundaries = tuple(boundaries)
        if stages is not None:
            self._drift = self._drift[list(stages)]
            self._latest = self._latest[list(stages)]
        self.pause()

    def pause(self) -> None:
        """Forget what was about to be done: the pipeline has changed, or is recovering."""
        self._streak, self._rest = 0, self.settings.cooldown

    def factors(self, replicas: Sequence[int]) -> Floats:
        """How much slower each stage is than the others, its replicas counted in."""
        factors: Floats = self._drift / np.array(replicas, float)
        return factors

    def layer_s(self) -> tuple[float, ...]:
        """The expected seconds of each layer where it runs now; empty before the first window."""
        if self.base_s is None:
            return ()
        return tuple((self.base_s * np.repeat(self._drift, np.diff(self.boundaries))).tolist())

    def _learn(self, window: Window) -> None:
        if self.base_s is None:
            self.base_s = np.concatenate([_spread(times, size) for times, size in self._by_stage(window)])
        for stage, (times, _) in enumerate(self._by_stage(window)):
            layers = slice(self.boundaries[stage], self.boundaries[stage + 1])
            base_s = self.base_s[layers]
            drift = sum(times) / max(float(base_s.sum()), 1e-12)
            self._latest[stage] = drift
            self._drift[stage] += self.settings.weight * (drift - self._drift[stage])
            if len(times) == len(base_s):
                expected_s = np.maximum(base_s * drift, 1e-12)
                base_s *= 1 + _BASE_WEIGHT * (np.array(times) / expected_s - 1)

    def _by_stage(self, window: Window) -> list[tuple[tuple[float, ...], int]]:
        return list(zip(window.layer_s, np.diff(self.boundaries).tolist(), strict=True))

    def _best(self, replicas: Floats) -> tuple[tuple[int, ...], float]:
        """The best boundaries, and the share of the longest stage's time that they save."""
        assert self.base_s is not None
        factors = self._drift / replicas
        best = best_boundaries(self.base_s, factors)
        now_s, then_s = (_longest_s(self.base_s, factors, cut) for cut in (self.boundaries, best))
        return best, 1 - then_s / now_s if now_s > 0 else 0.0

    def _settled(self) -> bool:
        return bool(np.all(np.abs(self._latest - self._drift) <= self.settings.settled * self._drift))

    def _move_s(self, boundaries: Sequence[int]) -> float:
        """Seconds to load what changes its stage."""
        moved = np.repeat(range(len(self._drift)), np.diff(self.boundaries)) != np.repeat(
            range(len(self._drift)), np.diff(boundaries)
        )
        return float(self._bytes[moved].sum()) / self.load_bytes_per_s


def best_boundaries(layer_s: Sequence[float] | Floats, factors: Sequence[float] | Floats) -> tuple[int, ...]:
    """Cut the layers into as many stages as there are factors, none empty, so that the longest is as short as possible.

    Among the best cuts the one whose stages are most alike is taken. Exact; O(stages * layers ** 2) in numpy.
    Raises `SettingError` if there are fewer layers than stages.

    >>> best_boundaries([1, 1, 1, 1, 1, 1], [1, 2])
    (0, 4, 6)
    """
    layers, stages = len(layer_s), len(factors)
    require(layers >= stages, f"{layers} layers cannot fill {stages} stages", "Use fewer stages.")
    prefix_s = np.concatenate([[0.0], np.cumsum(layer_s)])
    span_s = prefix_s[None, :] - prefix_s[:, None]
    span_s[np.tril_indices(layers + 1)] = np.inf
    longest, _ = _cheapest(span_s, factors, np.maximum, np.inf)
    _, origins = _cheapest(span_s, factors, lambda sums, costs: sums + costs**2, longest * (1 + 1e-9))
    cuts = [layers]
    for origin in reversed(origins):
        cuts.append(int(origin[cuts[-1]]))
    return tuple(reversed(cuts))


def _cheapest(
    span_s: Floats, factors: Sequence[float] | Floats, combine: object, cap: float
) -> tuple[float, list[Floats]]:
    """Walk through the stages: the least combined cost of the first j layers, and where the last stage begins."""
    best = np.full(len(span_s), np.inf)
    best[0] = 0.0
    origins = []
    for factor in factors:
        costs = np.where(span_s * factor <= cap, span_s * factor, np.inf)
        total = combine(best[:, None], costs)  # type: ignore[operator]
        origins.append(total.argmin(axis=0))
        best = total.min(axis=0)
    return float(best[-1]), origins


def _longest_s(layer_s: Floats, factors: Floats, boundaries: Sequence[int]) -> float:
    return float((np.add.reduceat(layer_s, list(boundaries[:-1])) * factors).max())


def _spread(times: tuple[float, ...], layers: int) -> Floats:
    """Times per layer; a sum for all is spread evenly."""
    return np.array(times) if len(times) == layers else np.full(layers, sum(times) / layers)
