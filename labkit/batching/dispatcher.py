"""Who runs next: the queue, the limits and the policy behind one lock.

Late binding is in `next_turn`: a batch is formed at the moment a worker asks for one, from what is queued then.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from threading import Condition, Lock
from typing import Any

from labkit.batching.future import unwatched
from labkit.batching.learned import Learned
from labkit.batching.ledger import Ledger
from labkit.batching.limits import Admission, Limits
from labkit.batching.policy import Decision, Greedy, Observer, Policy, Run, View, WaitUntil
from labkit.batching.queue import Bucket, Queue, Times
from labkit.batching.request import DONE, PREPARING, QUEUED, Request
from labkit.errors import EngineClosed, require

__all__ = ["Dispatcher", "Turn"]

_log = logging.getLogger(__name__)

_SHORTEST_WAIT_S = 0.0005
# Longer waits overflow the clock of some systems; asking again once an hour costs nothing.
_LONGEST_WAIT_S = 3600.0
_UNKNOWN_SERVICE_S = 0.05


@dataclass(frozen=True, slots=True)
class Turn:
    """What a worker is to do: run `batch`; the `hopeless` can no longer be answered in time."""

    batch: list[Request]
    hopeless: list[Request]


class Dispatcher:
    """Admits requests, keeps them in order, and hands batches to free workers; safe from any thread."""

    def __init__(self, limits: Limits, policy: Policy, ledger: Ledger) -> None:
        self._ledger = ledger
        self.limits = limits
        self._adopt(policy)
        self.open = True
        self.learned = Learned()
        self.policy_error = ""
        self._stopped = False
        self._queue = Queue()
        self._admission = Admission(self._retry_after_s)
        self._lock = Lock()
        self._wake = Condition(self._lock)
        # Workers that sleep, and whether one of them was called and has not looked yet.
        self._idle = 0
        self._called = False

    def _adopt(self, policy: Policy) -> None:
        self.policy = policy
        self._observe = policy.observe if isinstance(policy, Observer) else None

    @property
    def running(self) -> bool:
        """Whether workers are still wanted: while it is open, and then until it is stopped."""
        return not self._stopped

    @property
    def waiting(self) -> int:
        """Requests that were let in and have not begun, those in preprocessing included."""
        return self._admission.rows

    @property
    def waiting_bytes(self) -> int:
        """Bytes of their payloads."""
        return self._admission.payload_bytes

    @property
    def queued_rows(self) -> int:
        """Rows that are ready to run."""
        return self._queue.rows

    def admit(self, requests: Sequence[Request], *, ready: bool = False) -> None:
        """Let all of `requests` in or none; raises `EngineClosed`, `QueueFull` or `SettingError`.

        Those that are `ready`, because there was nothing to prepare, wait for a worker at once.
        """
        payload_bytes = 0
        for request in requests:
            payload_bytes += request.payload_bytes
        with self._lock:
            if not self.open:
                raise EngineClosed("the batcher is closed", "Submit to an open one.")
            self._admission.enter(len(requests), payload_bytes, self.limits)
            # Under the same lock as `close`, so that nobody slips in behind its last look at the ledger.
            self._ledger.open(requests)
            if ready:
                for request in requests:
                    self._queue.push(request)
                if self._idle and not self._called:
                    self._call()

    def _retry_after_s(self) -> float:
        bucket = next(self._queue.by_urgency(), None)
        known_s = self.learned.of(bucket.key).service.expected_s(self.limits.cap_rows) if bucket else 0.0
        return known_s or _UNKNOWN_SERVICE_S

    def push(self, request: Request) -> bool:
        """Let a prepared request wait for a worker; False if it was withdrawn meanwhile."""
        with self._lock:
            if request.state is DONE:
                return False
            request.ready_s = time.perf_counter()
            self._queue.push(request)
            if self._idle and not self._called:
                self._call()
        return True

    def _call(self) -> None:
        # One is enough: whoever comes looks at all that waits by then.
        self._called = True
        self._wake.notify()

    def withdraw(self, request: Request) -> None:
        """Make sure that a request which has not begun never will."""
        with self._lock:
            if request.state not in (PREPARING, QUEUED):
                return
            queued = request.state is QUEUED
            self._queue.discard(request)
            request.state = DONE
            self._admission.leave(1, request.payload_bytes)
        if queued:
            request.free()
        else:
            # One that is being prepared is still written to; `push` will find it withdrawn. Its payload is not needed.
            request.row = None

    def configure(self, policy: Policy | None, limits: dict[str, Any]) -> None:
        """Change the policy or some of the limits; raises `SettingError`, and changes nothing then."""
        unknown = sorted(set(limits) - set(Limits.__dataclass_fields__))
        require(not unknown, f"{unknown} are no limits of a batcher", f"Known: {list(Limits.__dataclass_fields__)}.")
        with self._lock:
            self.limits = replace(self.limits, **limits)
            # One that is being closed has its last policy: nothing may hold up what is left.
            if policy is not None and self.open:
                self._adopt(policy)
                self.policy_error = ""
            self._wake.notify_all()

    def close(self) -> None:
        """Let nobody in any more; what waits is run without asking the policy."""
        with self._lock:
            self.open = False
            self._adopt(Greedy())
            self._wake.notify_all()

    def stop(self) -> None:
        """Send the workers home."""
        with self._lock:
            self._stopped = True
            self._wake.notify_all()

    def next_turn(self) -> Turn | None:
        """Wait until the policy lets some bucket run; None when it has stopped. Called by free workers."""
        with self._lock:
            while not self._stopped:
                now_s, self._called = time.perf_counter(), False
                decided = self._decide(now_s)
                if isinstance(decided, WaitUntil):
                    self._wait(decided.at_s - now_s)
                    continue
                turn = self._take(*decided, now_s)
                # Others may sleep by a plan that this decision has made out of date.
                if self._idle and self._queue.rows:
                    self._call()
                return turn
        return None

    def _wait(self, seconds: float) -> None:
        self._idle += 1
        try:
            # A policy that waits until a time in the past must not turn this into a busy loop.
            self._wake.wait(min(max(seconds, _SHORTEST_WAIT_S), _LONGEST_WAIT_S))
        finally:
            self._idle -= 1

    def _decide(self, now_s: float) -> tuple[Bucket, Run] | WaitUntil:
        """The first bucket by urgency that may run, and what of it; without one, the time to ask again."""
        wake_s = math.inf
        for bucket in self._queue.by_urgency():
            decision = self._asked(self._view(bucket, now_s))
            if isinstance(decision, Run):
                return bucket, decision
            wake_s = min(wake_s, decision.at_s)
        return WaitUntil(wake_s)

    def _asked(self, view: View) -> Decision:
        try:
            return _sound(self.policy.decide(view), view)
        except BaseException as error:
            self._blame(error)
            return Greedy().decide(view)

    def _blame(self, error: BaseException) -> None:
        # A policy is the user's code. Its fault must not cost anybody an answer.
        if not self.policy_error:
            _log.error("%r raised; where it does, batches are formed greedily", self.policy, exc_info=error)
        self.policy_error = f"{type(error).__name__}: {error}"

    def learn(self, key: Hashable, rows: int, size: int, seconds: float) -> None:
        """Note that a batch of `rows`, padded to `size`, took `seconds`."""
        with self._lock:
            lesson = self.learned.of(key)
            lesson.service.observe(size, seconds)
            lesson.memory.succeeded(size)
            try:
                if self._observe is not None:
                    self._observe(rows, seconds)
            except BaseException as error:
                self._blame(error)

    def out_of_memory(self, key: Hashable, rows: int) -> None:
        """Note that a batch of `rows` did not fit into memory."""
        with self._lock:
            self.learned.of(key).memory.exceeded(rows)

    def _view(self, bucket: Bucket, now_s: float) -> View:
        lesson = self.learned.of(bucket.key)
        cap = lesson.memory.within(self.limits.cap_rows)
        return View(
            now_s=now_s,
            rows=bucket.rows,
            cap=cap,
            full=bucket.rows >= cap or bucket.cost >= self.limits.max_cost,
            oldest_s=bucket.oldest_s(),
            deadline_s=bucket.deadline_s(),
            service=lesson.service,
            arrivals_s=bucket.arrivals_s,
        )

    def _take(self, bucket: Bucket, run: Run, now_s: float) -> Turn:
        if run.pass_over:
            bucket.pass_over(run.pass_over, self.limits.ageing_s)
        times = self._times(bucket, run.rows, now_s) if bucket.deadline_s() < math.inf else None
        taken, hopeless = self._queue.take(bucket, run.rows, self.limits.max_cost, times)
        gone = taken + hopeless
        self._admission.leave(len(gone), sum([request.payload_bytes for request in gone]))
        return Turn(self._begun(taken, now_s), hopeless)

    def _times(self, bucket: Bucket, rows: int, now_s: float) -> Times:
        service = self.learned.of(bucket.key).service
        size = self.limits.size_for(min(rows, bucket.rows))
        return Times(now_s, now_s + service.low_s(1), now_s + service.expected_s(size))

    def _begun(self, requests: list[Request], now_s: float) -> list[Request]:
        """Those of `requests` that nobody has cancelled. From here on `cancel` answers False."""
        with unwatched:
            calm = [request.begins_unwatched() for request in requests]
        if not all(calm):
            requests = [one for one, began in zip(requests, calm, strict=True) if began or self._begins(one)]
        for request in requests:
            request.started_s = now_s
        return requests

    def _begins(self, request: Request) -> bool:
        if request.set_running_or_notify_cancel():
            return True
        # Cancelled just before. Its sender may still be busy with callbacks, so the request is ended here.
        request.state = DONE
        request.free()
        self._ledger.withdraw(request)
        return False


def _sound(decision: Any, view: View) -> Decision:
    """What the policy decided, within the bounds of the batch; raises if it is no decision."""
    if isinstance(decision, Run):
        return Run(max(1, min(int(decision.rows), view.cap)), max(0, int(decision.pass_over)))
    if isinstance(decision, WaitUntil) and not math.isnan(decision.at_s):
        return decision
    raise TypeError(f"decide answered {decision!r}; it must be Run(rows) or WaitUntil(at_s)")
