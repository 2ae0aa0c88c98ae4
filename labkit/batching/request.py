"""One request on its way through the batcher."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from enum import Enum
from math import nan
from typing import Any

from labkit.batching.pool import Slot
from labkit.records import Outcome, RequestFields

__all__ = ["DONE", "FIELDS", "PREPARING", "QUEUED", "RUNNING", "Request", "State", "fields", "size_bytes"]


# Python combines a future with no other class that has slots. So the fields are only declared here, and each kind of
# request has them among its own slots.
_NO_SLOTS: tuple[str, ...] = ()
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


class Request(ABC):
    """One row of work, and in each of its kinds (`Submitted`, `Awaited`) the future that its sender holds.

    Its fields are written by one owner at a time: sender, preparing thread, queue, worker. `row` is the sender's
    payload until that is prepared, then what the model is given, and None after that. `rank_s` orders the queue: the
    arrival time, made later by one ageing interval per priority level, and by one more if it is `passed_over`, once at
    most. So a request is overtaken only by what arrives within those intervals: nothing starves.
    """

    __slots__ = _NO_SLOTS

    number: int
    payload_bytes: int
    arrived_s: float
    intended_s: float
    deadline_s: float
    priority: int
    rank_s: float
    ready_s: float
    started_s: float
    state: State
    passed_over: bool
    row: Any
    key: Hashable
    slot: Slot | None
    cost: float
    real_units: int
    computed_units: int
    copied_bytes: int
    step: int

    def arrive(
        self,
        number: int,
        payload: Any,
        arrived_s: float,
        intended_s: float | None,
        deadline_s: float,
        priority: int,
        ageing_s: float,
    ) -> None:
        """Become request `number`; until then nothing of it can be read."""
        self.number = number
        self.row = payload
        self.payload_bytes = size_bytes(payload)
        self.arrived_s = arrived_s
        self.intended_s = arrived_s if intended_s is None else intended_s
        self.deadline_s = deadline_s
        self.priority = priority
        self.rank_s = arrived_s + priority * ageing_s if priority else arrived_s
        self.ready_s = self.started_s = nan
        self.state = PREPARING
        self.passed_over = False
        self.key = self.slot = None
        self.cost = 1.0
        self.real_units = self.computed_units = self.copied_bytes = 0
        self.step = -1

    @abstractmethod
    def begins_unwatched(self) -> bool:
        """Begin, if that is quickly done; else ask `set_running_or_notify_cancel`. Called under `unwatched`."""

    @abstractmethod
    def set_running_or_notify_cancel(self) -> bool:
        """Begin, unless it was cancelled: whether the work may begin."""

    @abstractmethod
    def ends_unwatched(self, result: Any) -> bool:
        """End with `result`, if that is quickly done; else `end` must do it. Called under `unwatched`."""

    @abstractmethod
    def end(self, result: Any) -> None:
        """End with `result`, unless the sender has cancelled in the same instant."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """End with `error`, unless the sender has cancelled in the same instant."""

    def free(self) -> None:
        """Let go of row and staging slot."""
        self.row = None
        slot = self.slot
        if slot is not None:
            self.slot = None
            slot.release()


# By name, for the slots of each kind.
FIELDS = tuple(Request.__annotations__)


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
