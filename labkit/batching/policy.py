"""When to run what is queued: the policies, behind one small protocol.

A policy is asked at the moment a worker is free, once per bucket of same-shaped rows. It sees the queue as it is *then*
and answers `Run(rows)` or `WaitUntil(time)`. It is asked again when its time has come or when a request arrives.
Nothing is closed or set aside early, so every decision uses all that is known (late binding).

To write one, give any object a `decide`; an `observe(rows, seconds)` is called after each batch if it exists.

    class Pairs:
        def decide(self, view: View) -> Decision:
            return Run(2) if view.rows >= 2 else WaitUntil(view.oldest_s + 0.010)
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from labkit.batching.service import ServiceModel
from labkit.errors import require

__all__ = [
    "AIMD",
    "Decision",
    "Deferral",
    "FixedSize",
    "Goodput",
    "Greedy",
    "MaxWait",
    "Observer",
    "Policy",
    "PreferredSizes",
    "Run",
    "View",
    "WaitUntil",
]

# Threads wake up a little late.
_MARGIN_S = 0.002


@dataclass(frozen=True, slots=True)
class View:
    """One bucket of the queue at one moment; times on `time.perf_counter`.

    `rows` wait, of which one batch may carry `cap`; `full` says that waiting cannot make the batch larger. `oldest_s`
    is the arrival of the oldest request, `deadline_s` the earliest deadline (infinite if none has one). `service`
    knows how long batches of this bucket take. `arrivals_s()` lists the arrivals of all that wait, in the order of the
    queue. (A batcher that is being closed runs what is left without asking.)
    """

    now_s: float
    rows: int
    cap: int
    full: bool
    oldest_s: float
    deadline_s: float
    service: ServiceModel
    arrivals_s: Callable[[], Sequence[float]] = tuple

    @property
    def latest_s(self) -> float:
        """When a batch of what waits must start to meet the earliest deadline (at once, while its time is unknown)."""
        if math.isinf(self.deadline_s):
            return math.inf
        return self.deadline_s - self.service.high_s(min(self.rows, self.cap)) - _MARGIN_S


@dataclass(frozen=True, slots=True)
class Run:
    """Run a batch of up to `rows` now.

    The first `pass_over` of those that wait stand back as if one priority level lower: they fill what room the others
    leave, and come first again after `ageing_s`. Nobody is passed over twice.
    """

    rows: int
    pass_over: int = 0


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Leave the bucket alone until `at_s`, or until something arrives."""

    at_s: float


Decision = Run | WaitUntil


class Policy(Protocol):
    """Decides for one bucket at a time."""

    def decide(self, view: View) -> Decision:
        """Say whether to run some of the bucket's rows now, or when to ask again."""
        ...


@runtime_checkable
class Observer(Protocol):
    """A policy that also learns from what was executed."""

    def observe(self, rows: int, seconds: float) -> None:
        """Learn that a batch of `rows` took `seconds`."""
        ...


@dataclass(frozen=True, slots=True)
class Greedy:
    """Run whatever is queued as soon as a worker is free; the busier it is, the larger the batches get.

    It waits for nothing, yet reaches within 1 % of the best rate of any timer under Poisson load (Inoue, 2021,
    "Queueing analysis of GPU-based inference servers with dynamic batching").
    """

    def decide(self, view: View) -> Decision:
        """Run all, up to the cap."""
        return Run(min(view.rows, view.cap))


@dataclass(frozen=True, slots=True)
class MaxWait:
    """Wait for a full batch, but let no request wait longer than `wait_ms` for company.

    The timer runs from the *oldest request's arrival*. A timer that starts when a worker gets free adds the wait to
    every batch, even under load, where the batch has long been full. No request expires for the sake of company.
    """

    wait_ms: float

    def __post_init__(self) -> None:
        require(0 <= self.wait_ms < 60_000, f"wait_ms is {self.wait_ms}; it must lie in 0..60000", "Give milliseconds.")

    def decide(self, view: View) -> Decision:
        """Run when full, when the oldest has waited long enough, or when a deadline comes near."""
        due_s = min(view.oldest_s + self.wait_ms / 1000, view.latest_s)
        if view.full or view.now_s >= due_s:
            return Run(min(view.rows, view.cap))
        return WaitUntil(due_s)


@dataclass(frozen=True, slots=True)
class FixedSize:
    """Run batches of exactly `rows`, a rest after `max_wait_ms` (static batching, the baseline of the others)."""

    rows: int
    max_wait_ms: float = 1000.0

    def __post_init__(self) -> None:
        require(self.rows >= 1, f"rows is {self.rows}; it must be at least 1", "Give the batch size.")
        MaxWait(self.max_wait_ms)

    def decide(self, view: View) -> Decision:
        """Run `rows` when there are so many, the rest when it has waited too long."""
        size = min(self.rows, view.cap)
        if view.rows >= size or view.full:
            return Run(size)
        return MaxWait(self.max_wait_ms).decide(view)


@dataclass(frozen=True, slots=True)
class PreferredSizes:
    """Run the largest of `sizes` that is queued; wait up to `wait_ms` for the smallest (after Triton's batcher).

    Unlike Triton it always takes the largest size that fits *now*, never the first one that was reached.
    """

    sizes: tuple[int, ...]
    wait_ms: float = 5.0

    def __post_init__(self) -> None:
        require(
            bool(self.sizes) and min(self.sizes) >= 1,
            f"sizes is {self.sizes}; it needs at least one size, each 1 or more",
            "Give for example sizes=(4, 8).",
        )
        MaxWait(self.wait_ms)

    def decide(self, view: View) -> Decision:
        """Run the largest size reached; without one, wait and then run what is there."""
        reached = [size for size in self.sizes if size <= min(view.rows, view.cap)]
        return Run(max(reached)) if reached else MaxWait(self.wait_ms).decide(view)


class AIMD:
    """Find the largest batch that runs within `slo_ms`: one row more while it holds, a tenth less when it does not.

    Source: Clipper (Crankshaw et al., NSDI 2017). `limit` is the batch size at present.
    """

    def __init__(self, slo_ms: float, *, backoff: float = 0.9) -> None:
        require(slo_ms > 0, f"slo_ms is {slo_ms}; it must be positive", "Give the time that one batch may take.")
        require(0 < backoff < 1, f"backoff is {backoff}; it must lie between 0 and 1", "Clipper uses 0.9.")
        self.slo_ms = slo_ms
        self.backoff = backoff
        self.limit = 1.0

    def __repr__(self) -> str:
        return f"AIMD(slo_ms={self.slo_ms:g}, limit={self.limit:.1f})"

    def decide(self, view: View) -> Decision:
        """Run what is queued, up to the limit found so far."""
        return Run(min(view.rows, view.cap, int(self.limit)))

    def observe(self, rows: int, seconds: float) -> None:
        """Raise the limit after a batch at the limit that was fast enough; lower it after one that was not."""
        if seconds * 1000 > self.slo_ms:
            self.limit = max(1.0, self.limit * self.backoff)
        elif rows >= int(self.limit):
            self.limit += 1.0


@dataclass(frozen=True, slots=True)
class Deferral:
    """Start as late as `slo_ms` allows, by the learned service time, so that batches grow and the device rests.

    After Symphony (Chen et al., 2023). It trades latency, up to the SLO, for fewer and fuller batches. While nothing is
    known of the service time it runs greedily, and so learns it.
    """

    slo_ms: float
    margin_ms: float = 5.0

    def __post_init__(self) -> None:
        require(self.slo_ms > 0, f"slo_ms is {self.slo_ms}; it must be positive", "Give the latency goal.")
        require(self.margin_ms >= 0, f"margin_ms is {self.margin_ms}; it must not be negative", "Give milliseconds.")

    def decide(self, view: View) -> Decision:
        """Run when full, or when the slowest likely batch would otherwise miss the goal."""
        rows = min(view.rows, view.cap)
        goal_s = min(view.oldest_s + self.slo_ms / 1000, view.deadline_s)
        latest_s = goal_s - view.service.high_s(rows) - self.margin_ms / 1000
        if view.full or view.now_s >= latest_s or math.isinf(latest_s):
            return Run(rows)
        return WaitUntil(latest_s)


@dataclass(frozen=True, slots=True)
class Goodput:
    """Run the largest batch that answers each of its rows within `slo_ms`; those that are too late for it stand back.

    In order of arrival, one burst makes everyone late until it is worked off: the first request, already late, takes
    the time that the second one needed. This policy lets a late request be late, and makes a batch no larger than its
    oldest row in time allows. Whoever stands back fills the room that is left, and comes first again after `ageing_s`.
    While all can be answered in time, or none, it is greedy. Nexus (Shen et al., SOSP 2019) forms its batches so, and
    drops those that are passed over; here nothing is dropped.
    """

    slo_ms: float
    margin_ms: float = 1.0

    def __post_init__(self) -> None:
        require(self.slo_ms > 0, f"slo_ms is {self.slo_ms}; it must be positive", "Give the latency goal.")
        require(
            0 <= self.margin_ms < self.slo_ms,
            f"margin_ms is {self.margin_ms}; it must lie in 0..{self.slo_ms}",
            "Give what a batch takes beyond its service time, 1 for example.",
        )

    def decide(self, view: View) -> Decision:
        """Run what is there if all of it is in time, else the largest batch that is."""
        rows, goal_s = min(view.rows, view.cap), (self.slo_ms - self.margin_ms) / 1000
        if view.now_s + view.service.high_s(rows) <= view.oldest_s + goal_s:
            return Run(rows)
        return self._largest(view, goal_s) or Run(rows)

    def _largest(self, view: View, goal_s: float) -> Run | None:
        """The batch with the most rows in time; of several such the one that passes over the fewest."""
        best, most = None, 0
        arrivals_s = view.arrivals_s()
        by_age = sorted(arrivals_s)
        one_s = view.service.high_s(1)
        for place, arrived_s in enumerate(arrivals_s):
            left_s = arrived_s + goal_s - view.now_s
            if left_s < one_s:
                continue
            room = bisect_right(range(1, view.cap + 1), left_s, key=view.service.high_s)
            company = len(by_age) - bisect_left(by_age, arrived_s)
            if min(room, company) > most:
                best, most = Run(room, pass_over=place), min(room, company)
            if room >= min(company, view.cap):
                break
        return best
