"""One request on its way through the pipeline, and the microbatches that it is cut into."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from labkit.records import Outcome, RequestRecord
from labkit.sharding.job import Replay
from labkit.sharding.nested import rows_of, split

if TYPE_CHECKING:
    from labkit.sharding.sequence import SequenceState

__all__ = ["Answer", "Microbatch", "Request"]

_AGEING_S = 1.0
_MISSING = object()


class Answer(Future[Any]):
    """A future whose cancellation withdraws its request at once; a request that has begun is not cancelled."""

    def __init__(self, on_cancel: Callable[[], None]) -> None:
        super().__init__()
        self._on_cancel = on_cancel

    def cancel(self) -> bool:
        """Withdraw the request unless it has begun."""
        if not super().cancel():
            return False
        self._on_cancel()
        self.set_running_or_notify_cancel()
        return True

    def set_running_or_notify_cancel(self) -> bool:
        """As `Future` does it, but a cancelled one may be found by several parties."""
        with self._condition:
            return self._state != "CANCELLED_AND_NOTIFIED" and super().set_running_or_notify_cancel()


class Microbatch:
    """Some rows of a request. `at` is the next layer that it needs, `slot` where its value lies meanwhile."""

    __slots__ = ("at", "index", "killed", "replay", "request", "restarts", "rows", "slot", "source_bytes")

    def __init__(self, request: Request, index: int, rows: int) -> None:
        self.request = request
        self.index = index
        self.rows = rows
        self.at = 0
        self.slot = -1
        self.source_bytes = 0
        self.killed: list[int] = []
        self.restarts = 0
        self.replay: Replay = ""

    @property
    def rank(self) -> tuple[float, int, int]:
        """Its place in the order of all work."""
        return (self.request.rank_s, self.request.number, self.index)


class Request:
    """Its parts are taken one by one, each answer is put in once, and the whole comes out in order."""

    def __init__(
        self,
        number: int,
        payload: Any,
        *,
        most_rows: int | None,
        intended_s: float | None,
        timeout_s: float,
        priority: int,
        on_cancel: Callable[[Request], None],
        sequence: SequenceState | None = None,
    ) -> None:
        self.number = number
        self.rows = rows_of(payload) if sequence is None else None
        self.parts: list[Any] = [payload] if sequence is not None else split(payload, most_rows)
        self.sequence = sequence
        self.arrived_s = time.perf_counter()
        self.intended_s = self.arrived_s if intended_s is None else intended_s
        self.deadline_s = self.arrived_s + timeout_s
        self.priority = priority
        self.rank_s = self.arrived_s + priority * _AGEING_S
        self.ready_s = self.started_s = math.nan
        self.step = -1
        self.copied_bytes = 0
        self.entered = 0
        self.done = False
        self.future = Answer(lambda: on_cancel(self))
        self._most_rows = most_rows
        self._outputs: list[Any] = [_MISSING] * len(self.parts)

    def enter(self) -> Microbatch:
        """Take the next part."""
        microbatch = Microbatch(self, self.entered, self.rows_of_part(self.entered) or 1)
        self.entered += 1
        return microbatch

    def rows_of_part(self, index: int) -> int | None:
        """Rows of a part; None where the payload has none."""
        if self.rows is None or self._most_rows is None or len(self.parts) == 1:
            return self.rows
        return min(self._most_rows, self.rows - index * self._most_rows)

    def put(self, index: int, output: Any) -> None:
        """Keep the answer of a part, if it has none yet."""
        if self._outputs[index] is _MISSING:
            self._outputs[index] = output

    @property
    def complete(self) -> bool:
        """Whether every part has its answer."""
        return not any(output is _MISSING for output in self._outputs)

    def outputs(self) -> tuple[list[Any], list[int | None]]:
        """The answers of all parts in order, with their rows."""
        return self._outputs, [self.rows_of_part(index) for index in range(len(self.parts))]

    def free(self) -> None:
        """Let go of payload and outputs."""
        self.done = True
        self.parts, self._outputs = [], []

    def record(self, outcome: Outcome, finished_s: float, error: str = "") -> RequestRecord:
        """Build the row that tells this request's whole story."""
        return RequestRecord(
            request=self.number,
            intended_s=self.intended_s,
            arrived_s=self.arrived_s,
            ready_s=self.ready_s,
            started_s=self.started_s,
            finished_s=finished_s,
            outcome=outcome,
            step=self.step,
            rows=self.rows or 1,
            priority=self.priority,
            copied_bytes=self.copied_bytes,
            error=error,
        )
