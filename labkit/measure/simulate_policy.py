"""Any batching policy in front of one modelled server, in virtual time: how good the policy is, apart from its code.

The policy is asked exactly as the batcher asks it: when the server is free, with a view of what is queued then, again
when an arrival or its own time comes. It learns service times only from the batches that it ran.

>>> from labkit.batching import Greedy
>>> from labkit.measure import LinearCurve, simulate
>>> from labkit.workloads import Poisson
>>> crowd = Poisson(rate_per_s=200).times(duration_s=100, seed=1)
>>> alike = simulate(LinearCurve(20.0, 1.0), crowd, cap=32)
>>> abs(simulate_policy(Greedy(), LinearCurve(20.0, 1.0), crowd, cap=32).mean_ms - alike.mean_ms) < 1e-6
True
"""

from __future__ import annotations

import math
from collections import deque
from itertools import chain

import numpy as np
import numpy.typing as npt

from labkit.batching import Limits, Policy, Run, ServiceModel, View
from labkit.errors import MeasureError, require
from labkit.measure.curve import ServiceCurve
from labkit.measure.simulate import Simulated

__all__ = ["simulate_policy"]

_MOST_WAITS = 10_000


def simulate_policy(
    policy: Policy,
    service: ServiceCurve,
    arrivals_s: npt.ArrayLike,
    *,
    cap: int = 32,
    ageing_s: float = Limits().ageing_s,
) -> Simulated:
    """Serve the requests that arrive at `arrivals_s` (sorted) as `policy` decides, in batches of at most `cap`.

    Those that it passes over stand back by `ageing_s`. Raises `MeasureError` for a policy that waits for ever, and
    whatever the policy itself raises.
    """
    at_s = np.asarray(arrivals_s, dtype=np.float64)
    require(at_s.size > 0 and bool(np.all(np.diff(at_s) >= 0)), "arrivals_s is empty or not sorted", "Sort it.")
    server = _Server(policy, service, _Line(at_s.tolist(), ageing_s), cap)
    while not server.finished:
        server.serve()
    return Simulated(
        latencies_ms=1e3 * (np.array(server.answered_s) - at_s),
        batch_rows=np.array(server.rows, dtype=np.int64),
        busy_share=server.busy_s / (server.now_s - float(at_s[0])),
        achieved_per_s=at_s.size / (server.now_s - float(at_s[0])),
    )


class _Line:
    """Who waits, by number: those in order of arrival, and those that were passed over, in the same order."""

    def __init__(self, at_s: list[float], ageing_s: float) -> None:
        self.at_s, self._ageing_s = at_s, ageing_s
        self.arrived = 0
        self._fresh: deque[int] = deque()
        self._passed: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._fresh) + len(self._passed)

    def arrive(self, now_s: float) -> None:
        """Let in whoever has come by now."""
        while self.arrived < len(self.at_s) and self.at_s[self.arrived] <= now_s:
            self._fresh.append(self.arrived)
            self.arrived += 1

    @property
    def next_s(self) -> float:
        """When the next one comes."""
        return self.at_s[self.arrived] if self.arrived < len(self.at_s) else math.inf

    @property
    def oldest_s(self) -> float:
        """The earliest arrival of those that wait."""
        return min(self.at_s[line[0]] for line in (self._fresh, self._passed) if line)

    def arrivals_s(self) -> list[float]:
        """All arrivals of those that wait, by rank."""
        return [self.at_s[number] for number in self._by_rank()]

    def _by_rank(self) -> list[int]:
        if not self._passed:
            return list(self._fresh)
        return sorted(chain(self._passed, self._fresh), key=self._rank)

    def _rank(self, number: int) -> tuple[float, int]:
        # The passed were the first of the fresh, so they have the lower numbers.
        passed = bool(self._passed) and number <= self._passed[-1]
        return self.at_s[number] + self._ageing_s * passed, number

    def pass_over(self, count: int) -> None:
        """Let the first `count` stand back, those that never did."""
        for number in self._by_rank()[:count]:
            if self._fresh and number == self._fresh[0]:
                self._passed.append(self._fresh.popleft())

    def take(self) -> int:
        """The first by rank; it waits no longer."""
        heads = [line for line in (self._fresh, self._passed) if line]
        return min(heads, key=lambda line: self._rank(line[0])).popleft()


class _Server:
    """The clock, the queue and what the policy can know."""

    def __init__(self, policy: Policy, service: ServiceCurve, line: _Line, cap: int) -> None:
        self._policy, self._service, self._line, self._cap = policy, service, line, cap
        self._observe = getattr(policy, "observe", None)
        self._learned = ServiceModel()
        self.now_s = 0.0
        self.busy_s = 0.0
        self.answered_s = [math.nan] * len(line.at_s)
        self.rows: list[int] = []

    @property
    def finished(self) -> bool:
        """Whether nobody waits and nobody comes any more."""
        return not self._line and math.isinf(self._line.next_s)

    def serve(self) -> None:
        """Ask until the policy runs a batch, and run it."""
        self._go_to(self.now_s if self._line else max(self.now_s, self._line.next_s))
        for _ in range(_MOST_WAITS):
            decision = self._policy.decide(self._view())
            if isinstance(decision, Run):
                return self._run(decision)
            wake_s = max(decision.at_s, self.now_s + 1e-6)
            if math.isinf(min(wake_s, self._line.next_s)):
                break
            self._go_to(min(wake_s, self._line.next_s))
        raise MeasureError(f"the policy let {len(self._line)} requests wait without an end", "Answer Run at some time.")

    def _go_to(self, now_s: float) -> None:
        self.now_s = now_s
        self._line.arrive(now_s)

    def _view(self) -> View:
        rows = len(self._line)
        return View(
            now_s=self.now_s,
            rows=rows,
            cap=self._cap,
            full=rows >= self._cap,
            oldest_s=self._line.oldest_s,
            deadline_s=math.inf,
            service=self._learned,
            arrivals_s=self._line.arrivals_s,
        )

    def _run(self, decision: Run) -> None:
        self._line.pass_over(decision.pass_over)
        rows = max(1, min(decision.rows, self._cap, len(self._line)))
        seconds = self._service(rows) / 1e3
        self._learned.observe(rows, seconds)
        if self._observe is not None:
            self._observe(rows, seconds)
        for _ in range(rows):
            self.answered_s[self._line.take()] = self.now_s + seconds
        self.busy_s += seconds
        self.rows.append(rows)
        self._go_to(self.now_s + seconds)
