"""One run from start to end: let a sender send, wait for the answers, collect the rows, judge the whole."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

import numpy as np

from labkit.engine import Engine
from labkit.measure.run import Run, late
from labkit.measure.sender import Sender
from labkit.records import RequestRecord, StepRecord

__all__ = ["Halt", "Plan", "conduct"]

# A stopped run waits this long for answers: Stop means now.
STOPPED_DRAIN_S = 0.5
# An engine may write a request's row a little after it resolved the future.
ROWS_LAG_S = 1.0
# Rows are collected while the run goes on, because an engine keeps only the newest.
COLLECT_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """When the window is, and what is noted in the run. `scheduled`: the sender follows a clock and can be late."""

    start_s: float
    duration_s: float
    drain_s: float
    seed: int
    slo_ms: float | None
    scheduled: bool

    @property
    def end_s(self) -> float:
        """The end of the window."""
        return self.start_s + self.duration_s


class Halt:
    """Says when to stop: when the user's event is set, or when the run ends for another reason."""

    def __init__(self, stop: Event | None) -> None:
        self._stop = stop
        self._ended = False

    def __call__(self) -> bool:
        """Whether to stop now."""
        return self._ended or self.asked

    @property
    def asked(self) -> bool:
        """Whether the user asked for it."""
        return self._stop is not None and self._stop.is_set()

    def end(self) -> None:
        """End the sender, too, if it still runs."""
        self._ended = True


def conduct(engine: Engine, plan: Plan, stop: Event | None, sender_of: Callable[[Halt], Sender]) -> Run:
    """Run a sender that follows a `Halt` to its end and return the run; its error, if it had one, is raised here."""
    halt = Halt(stop)
    sender, rows = sender_of(halt), _Rows(engine)
    try:
        _send(sender, rows)
        stopped, sent_until_s = halt.asked, time.perf_counter()
        lost = _drain(sender, rows, halt, plan.drain_s)
    finally:
        halt.end()
    rows.await_all(sender, lost)
    window_s = min(plan.duration_s, max(0.0, sent_until_s - plan.start_s)) if stopped else plan.duration_s
    return _told(sender, rows, plan, window_s, stopped, lost, time.perf_counter() - max(sent_until_s, plan.end_s))


def _send(sender: Sender, rows: _Rows) -> None:
    sender.start()
    while sender.is_alive():
        sender.join(COLLECT_EVERY_S)
        sender.unresolved()
        rows.collect()
    if sender.error is not None:
        raise sender.error


def _drain(sender: Sender, rows: _Rows, halt: Halt, limit_s: float) -> int:
    """Wait for the answers; return how many did not come. Those are withdrawn, so that they disturb no later run."""
    end_s = time.perf_counter() + limit_s
    while (waiting := sender.unresolved()) and time.perf_counter() < end_s:
        if halt.asked:
            end_s = min(end_s, time.perf_counter() + STOPPED_DRAIN_S)
        time.sleep(0.005)
        rows.collect()
    rows.collect()
    for future in waiting:
        future.cancel()
    return len(waiting)


class _Rows:
    """The rows that the engine writes from now on."""

    def __init__(self, engine: Engine) -> None:
        self._records = engine.records
        # A cursor beyond the end returns no row and the cursor of now.
        _, self._request_cursor = self._records.requests_since(2**62)
        _, self._step_cursor = self._records.steps_since(2**62)
        self.requests: list[RequestRecord] = []
        self.steps: list[StepRecord] = []

    def collect(self) -> None:
        """Read what is new."""
        requests, self._request_cursor = self._records.requests_since(self._request_cursor)
        steps, self._step_cursor = self._records.steps_since(self._step_cursor)
        self.requests.extend(requests)
        self.steps.extend(steps)

    def await_all(self, sender: Sender, lost: int) -> None:
        """Give rows that lag behind their futures a moment to arrive."""
        ours, end_s = set(sender.sent_s), time.perf_counter() + ROWS_LAG_S
        while sum(row.intended_s in ours for row in self.requests) < len(sender.sent_s) - lost:
            if time.perf_counter() > end_s:
                return
            time.sleep(0.005)
            self.collect()


def _told(sender: Sender, rows: _Rows, plan: Plan, window_s: float, stopped: bool, lost: int, drained_s: float) -> Run:
    """Join rows and sends by the intended send time, which is unique to this run, and judge the run."""
    start_s, end_s = plan.start_s, plan.start_s + window_s
    ours = set(sender.sent_s)
    mine = [row for row in rows.requests if row.intended_s in ours]
    counted = [row for row in mine if start_s <= row.intended_s < end_s]
    carried = [row for row in mine if row.intended_s < start_s <= row.finished_s < end_s and row.outcome == "ok"]
    sent = [lag_s for at_s, lag_s in zip(sender.sent_s, sender.lags_s, strict=True) if start_s <= at_s < end_s]
    lag_p99_ms = float(np.quantile(sent, 0.99, method="higher")) * 1e3 if sent and plan.scheduled else 0.0
    reasons = (
        "" if sent else "no request fell into the window",
        _unanswered(lost, plan, stopped),
        _unrecorded(len(sender.sent_s) - len(mine) - lost),
        late(lag_p99_ms, _median_ms(counted)) if plan.scheduled else "",
    )
    return Run(
        requests=tuple(counted),
        steps=tuple(step for step in rows.steps if start_s <= step.started_s < end_s),
        window_s=window_s,
        offered=len(sent),
        lag_p99_ms=lag_p99_ms,
        void="; ".join(reason for reason in reasons if reason),
        start_s=start_s,
        lost=len(sent) - len(counted),
        carried=len(carried),
        drained_s=max(0.0, drained_s),
        stopped=stopped,
        seed=plan.seed,
        slo_ms=plan.slo_ms,
    )


def _unanswered(lost: int, plan: Plan, stopped: bool) -> str:
    if not lost:
        return ""
    waited_s = STOPPED_DRAIN_S if stopped else plan.drain_s
    return f"{lost} requests had no answer {waited_s:g} s after the last send (they count as misses)"


def _unrecorded(missing: int) -> str:
    return f"the engine wrote no row for {missing} requests (they count as misses)" if missing > 0 else ""


def _median_ms(rows: list[RequestRecord]) -> float:
    answered_ms = [row.latency_s * 1e3 for row in rows if row.outcome == "ok"]
    return float(np.median(answered_ms)) if answered_ms else math.nan
