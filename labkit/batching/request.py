"""One request on its way through the batcher, and the future that its sender holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import InvalidStateError
from concurrent.futures._base import FINISHED, PENDING
from enum import Enum
from math import nan
from typing import Any

from labkit.batching.future import Cancellable
from labkit.batching.mailbox import LoopAnswer, Mailbox
from labkit.batching.pool import Slot
from labkit.records import Outcome, RequestFields

__all__ = ["DONE", "PREPARING", "QUEUED", "RUNNING", "Answer", "Request", "State", "fields", "size_bytes"]

_log = logging.getLogger(__name__)


# Looking for something that is not there is slow, and most small payloads are one of these.
_WEIGHTLESS = frozenset({bool, int, float, type(None)})


class State(Enum):
    """Where a request is; it only ever moves down this list."""

    PREPARING = 0
    QUEUED = 1
    RUNNING = 2
    DONE = 3


# Asking an enumeration for a member costs as much as all else that a request needs in one of its steps.
PREPARING, QUEUED, RUNNING, DONE = State


class Answer(Cancellable[Any]):
    """A future that tells the batcher at once when its sender cancels it."""

    __slots__ = ("_on_cancel", "_request")

    def __init__(self, request: Request, on_cancel: Callable[[Request], None]) -> None:
        # As the base does it: to call it would cost as much again.
        self._watched = False
        self._state = PENDING
        self._result = self._exception = None
        self._request: Request | None = request
        self._on_cancel = on_cancel

    def _withdraw(self) -> None:
        request = self._request
        if request is not None:
            self._on_cancel(request)
            self.forget()

    def forget(self) -> None:
        """Let go of the request, so that a kept answer keeps nothing else alive."""
        self._request = None

    def ends_unwatched(self, result: Any) -> bool:
        """See `Cancellable.ends_unwatched`."""
        if self._watched:
            return False
        self._request = None
        self._result = result
        self._state = FINISHED
        return True

    def deliver(self, output: Any, error: Exception | None) -> None:
        """Become done, unless the sender cancelled in the same instant; whatever a callback raises is logged."""
        self.forget()
        try:
            if error is None:
                self.set_result(output)
            else:
                self.set_exception(error)
        except InvalidStateError:
            return
        except BaseException:
            # A callback of this future wants to end the thread. It must not take its neighbours' answers along.
            _log.exception("a callback of a request's future raised")


class Request:
    """One row of work. Its fields are written by one owner at a time: sender, preparing thread, queue, worker.

    `rank_s` orders the queue: the arrival time, made later by one ageing interval per priority level, and by one more
    if it is `passed_over`, once at most. So a request is overtaken only by what arrives within those intervals: nothing
    starves.
    """

    __slots__ = (
        "__weakref__",
        "arrived_s",
        "computed_units",
        "copied_bytes",
        "cost",
        "deadline_s",
        "future",
        "intended_s",
        "key",
        "number",
        "passed_over",
        "payload",
        "payload_bytes",
        "priority",
        "rank_s",
        "ready_s",
        "real_units",
        "row",
        "slot",
        "started_s",
        "state",
        "step",
    )

    def __init__(
        self,
        number: int,
        payload: Any,
        arrived_s: float,
        intended_s: float | None,
        deadline_s: float,
        priority: int,
        ageing_s: float,
        on_cancel: Callable[[Request], None],
        mailbox: Mailbox | None = None,
    ) -> None:
        self.number = number
        self.payload = payload
        self.payload_bytes = size_bytes(payload)
        self.arrived_s = arrived_s
        self.intended_s = arrived_s if intended_s is None else intended_s
        self.deadline_s = deadline_s
        self.priority = priority
        self.rank_s = arrived_s + priority * ageing_s if priority else arrived_s
        self.ready_s = self.started_s = nan
        self.state = PREPARING
        self.passed_over = False
        self.row: Any = None
        self.key: Hashable = None
        self.slot: Slot | None = None
        self.cost = 1.0
        self.real_units = self.computed_units = self.copied_bytes = 0
        self.step = -1
        self.future: Answer | LoopAnswer
        if mailbox is None:
            self.future = Answer(self, on_cancel)
        else:
            self.future = answer = LoopAnswer(loop=mailbox.loop)
            answer.request, answer.mailbox = self, mailbox

    def free(self) -> None:
        """Let go of payload, row and staging slot."""
        self.payload = self.row = None
        slot = self.slot
        if slot is not None:
            self.slot = None
            slot.release()


def fields(requests: Iterable[Request], outcome: Outcome, finished_s: float, error: str = "") -> list[RequestFields]:
    """For each of `requests` the row that tells its whole story."""
    return [
        (
            one.number,
            one.intended_s,
            one.arrived_s,
            one.ready_s,
            one.started_s,
            finished_s,
            outcome,
            one.step,
            1,
            one.priority,
            one.copied_bytes,
            error,
        )
        for one in requests
    ]


def size_bytes(payload: Any) -> int:
    """Bytes that a waiting payload holds, as far as they are known without looking inside (else 0).

    >>> size_bytes(b"jpeg"), size_bytes("ab"), size_bytes(object())
    (4, 2, 0)
    """
    if type(payload) in _WEIGHTLESS:
        return 0
    nbytes = getattr(payload, "nbytes", None)
    if nbytes is None:
        return len(payload) if isinstance(payload, (str, bytes, bytearray)) else 0
    return nbytes if isinstance(nbytes, int) else 0
