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

import numpy as np
import numpy.typing as npt

from labkit.batching import Policy, Run, ServiceModel, View
from labkit.errors import MeasureError, require
from labkit.measure.curve import ServiceCurve
from labkit.measure.simulate import Simulated

__all__ = ["simulate_policy"]

_MOST_WAITS = 10_000


def simulate_policy(policy: Policy, service: ServiceCurve, arrivals_s: npt.ArrayLike, *, cap: int = 32) -> Simulated:
    """Serve the requests that arrive at `arrivals_s` (sorted) as `policy` decides, in batches of at most `cap`.

    Raises `MeasureError` for a policy that waits for ever, and whatever the policy itself raises.
    """
    at_s = np.asarray(arrivals_s, dtype=np.float64)
    require(at_s.size > 0 and bool(np.all(np.diff(at_s) >= 0)), "arrivals_s is empty or not sorted", "Sort it.")
    server = _Server(policy, service, at_s.tolist(), cap)
    while server.first < at_s.size:
        server.serve()
    finished_s = np.repeat(server.ends_s, server.rows)
    span_s = server.ends_s[-1] - float(at_s[0])
    return Simulated(
        latencies_ms=1e3 * (finished_s - at_s),
        batch_rows=np.array(server.rows, dtype=np.int64),
        busy_share=server.busy_s / span_s,
        achieved_per_s=at_s.size / span_s,
    )


class _Server:
    """The clock, the queue (arrivals from `first` up to now) and what the policy can know."""

    def __init__(self, policy: Policy, service: ServiceCurve, at_s: list[float], cap: int) -> None:
        self._policy, self._service, self._at_s, self._cap = policy, service, at_s, cap
        self._observe = getattr(policy, "observe", None)
        self._learned = ServiceModel()
        self._now_s = 0.0
        self._arrived = 0
        self.first = 0
        self.busy_s = 0.0
        self.ends_s: list[float] = []
        self.rows: list[int] = []

    def serve(self) -> None:
        """Ask until the policy runs a batch, and run it."""
        self._go_to(max(self._now_s, self._at_s[self.first]))
        for _ in range(_MOST_WAITS):
            decision = self._policy.decide(self._view())
            if isinstance(decision, Run):
                return self._run(max(1, min(decision.rows, self._cap, self._arrived - self.first)))
            next_s = self._at_s[self._arrived] if self._arrived < len(self._at_s) else math.inf
            wake_s = max(decision.at_s, self._now_s + 1e-6)
            if math.isinf(min(wake_s, next_s)):
                break
            self._go_to(min(wake_s, next_s))
        raise MeasureError(
            f"the policy let {self._arrived - self.first} requests wait without an end", "Answer Run at some time."
        )

    def _go_to(self, now_s: float) -> None:
        self._now_s = now_s
        while self._arrived < len(self._at_s) and self._at_s[self._arrived] <= now_s:
            self._arrived += 1

    def _view(self) -> View:
        rows = self._arrived - self.first
        return View(
            now_s=self._now_s,
            rows=rows,
            cap=self._cap,
            full=rows >= self._cap,
            oldest_s=self._at_s[self.first],
            deadline_s=math.inf,
            service=self._learned,
        )

    def _run(self, rows: int) -> None:
        seconds = self._service(rows) / 1e3
        self._learned.observe(rows, seconds)
        if self._observe is not None:
            self._observe(rows, seconds)
        self.first += rows
        self.busy_s += seconds
        self.ends_s.append(self._now_s + seconds)
        self.rows.append(rows)
        self._go_to(self._now_s + seconds)
