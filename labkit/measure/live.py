"""An open loop whose rate and burstiness can be changed while it runs, for live panels.

>>> throttle = LiveArrivals(rate_per_s=100)
>>> throttle.set(250, cv=3.0)
>>> throttle.setting
(250.0, 3.0)
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np

from labkit.engine import Engine
from labkit.errors import QueueFull, require
from labkit.measure import pace
from labkit.measure.sender import Payloads, drawn

__all__ = [
    "LiveArrivals",
    "LiveTotals",
    "Schedule",
    "drive_live",
]

# More than one thread of Python can send; asking for it would only build up a backlog of late sends.
MAX_RATE_PER_S = 10_000.0
LAGS_KEPT = 1_000


class LiveArrivals:
    """The dial: a rate and a coefficient of variation that any thread may change at any moment.

    `rate_per_s` 0 pauses; `cv` 0 is a metronome, 1 Poisson, more comes in bursts (gamma gaps).
    """

    def __init__(self, rate_per_s: float, cv: float = 1.0) -> None:
        self._lags_ms: deque[float] = deque(maxlen=LAGS_KEPT)
        self._setting = (0.0, 1.0)
        self.set(rate_per_s, cv)

    def set(self, rate_per_s: float, cv: float | None = None) -> None:
        """Change the rate, and the burstiness if `cv` is given; a driver follows within 20 ms."""
        cv = self._setting[1] if cv is None else cv
        require(
            0 <= rate_per_s <= MAX_RATE_PER_S,
            f"rate_per_s is {rate_per_s}; it must be in 0..{MAX_RATE_PER_S:g}",
            "Give 0 to pause.",
        )
        require(0 <= cv <= 100, f"cv is {cv}; it must be in 0..100", "Give 1 for Poisson arrivals.")
        # One assignment of one tuple: a reader in another thread sees the old pair or the new pair, never a mix.
        self._setting = (float(rate_per_s), float(cv))

    @property
    def setting(self) -> tuple[float, float]:
        """The rate per second and the coefficient of variation of now."""
        return self._setting

    def note_lag(self, lag_ms: float) -> None:
        """Remember how late a send was."""
        self._lags_ms.append(lag_ms)

    @property
    def lag_p99_ms(self) -> float:
        """99th percentile of the generator's lag over its last 1,000 sends; `nan` before the first."""
        lags_ms = list(self._lags_ms)
        return float(np.quantile(lags_ms, 0.99, method="higher")) if lags_ms else math.nan


@dataclass(frozen=True, slots=True)
class LiveTotals:
    """What a live driver did until it was stopped."""

    sent: int
    rejected: int
    lag_p99_ms: float


class Schedule:
    """The next intended send time, moved when the dial moves.

    Gaps are drawn in units of the mean gap and used up at the rate of the moment: raising the rate shortens the wait
    that is going on, instead of letting a slow setting finish it.
    """

    def __init__(self, arrivals: LiveArrivals, seed: int, now_s: float) -> None:
        self._arrivals = arrivals
        self._rng = np.random.default_rng(seed)
        self._rate_per_s, self._cv = arrivals.setting
        self._from_s = now_s
        self._gap = self._draw()

    def due_s(self, now_s: float) -> float:
        """When the next request is meant to be sent, as the dial stands; `inf` while paused."""
        setting = self._arrivals.setting
        if setting != (self._rate_per_s, self._cv):
            self._turn(setting, now_s)
        return self._from_s + self._gap / self._rate_per_s if self._rate_per_s else math.inf

    def sent(self, due_s: float) -> None:
        """Go on to the request after the one that was due then."""
        self._from_s, self._gap = due_s, self._draw()

    def _turn(self, setting: tuple[float, float], now_s: float) -> None:
        self._gap = max(0.0, self._gap - (now_s - self._from_s) * self._rate_per_s)
        self._from_s = now_s
        if setting[1] != self._cv:
            self._cv = setting[1]
            self._gap = self._draw()
        self._rate_per_s = setting[0]

    def _draw(self) -> float:
        return float(self._rng.gamma(self._cv**-2, self._cv**2)) if self._cv > 0.01 else 1.0


def drive_live(engine: Engine, rate_source: LiveArrivals, workload: Payloads, stop: Event, seed: int = 0) -> LiveTotals:
    """Send until `stop` is set, at the rate and burstiness that `rate_source` has at each moment.

    It runs in the calling thread; a panel gives it its own. What happens is read from `engine.records`, the
    generator's lag from `rate_source.lag_p99_ms`. A full queue is counted and endured; anything else that
    `engine.submit` raises ends the loop and is raised here.
    """
    with pace.first_in_line():
        return _live(engine, rate_source, drawn(workload, seed), stop, seed)


def _live(engine: Engine, rate_source: LiveArrivals, payloads: Iterator[Any], stop: Event, seed: int) -> LiveTotals:
    schedule, sent, rejected = Schedule(rate_source, seed, time.perf_counter()), 0, 0
    while not stop.is_set():
        now_s = time.perf_counter()
        due_s = schedule.due_s(now_s)
        if now_s < due_s:
            pace.towards(due_s)
            continue
        rate_source.note_lag((now_s - due_s) * 1e3)
        try:
            engine.submit(next(payloads), intended_s=due_s)
        except QueueFull:
            rejected += 1
        sent += 1
        schedule.sent(due_s)
    return LiveTotals(sent, rejected, rate_source.lag_p99_ms)
