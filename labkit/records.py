"""What every engine emits: one row per request, one row per executed step.

All metrics, plots and alerts are computed from these rows and from nothing else. They are named tuples, because engines
write one on the hot path of every request, where a frozen dataclass costs three times as much. A plain tuple of the
fields costs a fifth of that, so a recorder takes those too and names them when they are read. Times are seconds
on `time.perf_counter`, the same clock for every thread of the process; a time that never came is `nan`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Generic, Literal, NamedTuple, TypeVar

__all__ = ["Outcome", "Recorder", "RequestFields", "RequestRecord", "StepOutcome", "StepRecord", "Tally"]

Outcome = Literal["ok", "failed", "rejected", "expired", "cancelled"]
StepOutcome = Literal["ok", "failed", "out_of_memory"]

# The fields of a `RequestRecord` in their order.
RequestFields = tuple[int, float, float, float, float, float, Outcome, int, int, int, int, str]


class RequestRecord(NamedTuple):
    """One request, from the moment it was meant to be sent to the moment its future was resolved.

    `intended_s` is when the load generator meant to send it (for other callers: when it arrived); latency counts from
    there, so a generator that runs late cannot hide queueing. `ready_s` is the end of preprocessing, `started_s` the
    start of the step that produced its answer, `step` that step's number (-1: none ran). `copied_bytes` were copied on
    the host for it: into staging memory, and as its share of putting batches together.
    """

    request: int
    intended_s: float
    arrived_s: float
    ready_s: float
    started_s: float
    finished_s: float
    outcome: Outcome
    step: int = -1
    rows: int = 1
    priority: int = 0
    copied_bytes: int = 0
    error: str = ""

    @property
    def latency_s(self) -> float:
        """Seconds from the intended send time to the answer."""
        return self.finished_s - self.intended_s

    @property
    def wait_s(self) -> float:
        """Seconds from arrival to the start of execution; `nan` if none started."""
        return self.started_s - self.arrived_s


class StepRecord(NamedTuple):
    """One executed step: a batch on a device, or one item of preprocessing.

    `cap` is how many rows it could have carried, `padded_rows` how many it computed beyond `rows` to reach an allowed
    size, `queued_rows` how many were left waiting. `real_units` of `computed_units` (tokens, pixels) were asked for:
    the rest is padding. `copied_bytes` were copied on the host, in `collate_s`, to put the batch together.
    """

    step: int
    stage: str
    worker: int
    device: str
    started_s: float
    finished_s: float
    rows: int
    cap: int
    outcome: StepOutcome = "ok"
    padded_rows: int = 0
    queued_rows: int = 0
    real_units: int = 0
    computed_units: int = 0
    copied_bytes: int = 0
    collate_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """Seconds that the step took."""
        return self.finished_s - self.started_s


@dataclass(slots=True)
class Tally:
    """How many requests ended in which way."""

    ok: int = 0
    failed: int = 0
    rejected: int = 0
    expired: int = 0
    cancelled: int = 0

    def count(self, outcome: Outcome, requests: int = 1) -> None:
        """Add so many."""
        setattr(self, outcome, getattr(self, outcome) + requests)


Row = TypeVar("Row")


class _Log(Generic[Row]):
    """The newest `capacity` rows, and how many there ever were."""

    def __init__(self, capacity: int) -> None:
        self._rows: deque[Row] = deque(maxlen=capacity)
        self._count = 0
        self._lock = Lock()

    def extend(self, rows: Sequence[Row]) -> None:
        with self._lock:
            self._rows.extend(rows)
            self._count += len(rows)

    def since(self, cursor: int) -> tuple[list[Row], int]:
        with self._lock:
            fresh = min(self._count - cursor, len(self._rows))
            rows = list(islice(reversed(self._rows), max(0, fresh)))
            return rows[::-1], self._count


class Recorder:
    """Where an engine writes its rows and everybody else reads them; safe from any thread.

    It keeps the newest `capacity` rows of each kind, so that a service that runs for months does not grow. A reader
    holds a cursor and asks only for what is new:

    >>> recorder = Recorder()
    >>> recorder.add_requests([RequestRecord(1, 0.0, 0.0, 0.0, 0.0, 0.5, "ok")])
    >>> rows, cursor = recorder.requests_since(0)
    >>> rows[0].latency_s, recorder.requests_since(cursor)[0]
    (0.5, [])
    """

    def __init__(self, capacity: int = 200_000) -> None:
        self._requests: _Log[RequestFields] = _Log(capacity)
        self._steps: _Log[StepRecord] = _Log(capacity)

    def add_requests(self, rows: Sequence[RequestFields]) -> None:
        """Append rows of ended requests, as `RequestRecord`s or as plain tuples of their fields."""
        self._requests.extend(rows)

    def add_steps(self, rows: list[StepRecord]) -> None:
        """Append rows of executed steps."""
        self._steps.extend(rows)

    def requests_since(self, cursor: int) -> tuple[list[RequestRecord], int]:
        """Request rows added after `cursor` (0: all that are kept), oldest first, and the new cursor."""
        rows, now = self._requests.since(cursor)
        return [RequestRecord._make(row) for row in rows], now

    def steps_since(self, cursor: int) -> tuple[list[StepRecord], int]:
        """Step rows added after `cursor` (0: all that are kept), oldest first, and the new cursor."""
        return self._steps.since(cursor)

    def requests(self) -> list[RequestRecord]:
        """All request rows that are kept, in the order in which the requests ended."""
        return self.requests_since(0)[0]

    def steps(self) -> list[StepRecord]:
        """All step rows that are kept, in the order in which the steps ended."""
        return self.steps_since(0)[0]
