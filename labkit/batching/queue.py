"""What waits for a worker: one bucket per row shape, each in order of rank.

Buckets keep shapes apart, so a batch never stops at the first row of another shape, and a bucket that waits for company
does not hold up its neighbours. Within a bucket, requests of one priority level are ordered by arrival, and the level
whose head has the smallest rank goes first. A request that was withdrawn leaves its entry behind; entries are dropped
when they surface, and swept when they outnumber the living.

The queue is not locked; its owner does that.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from labkit.batching.request import Request, State

__all__ = ["Bucket", "Queue", "Taken", "Times"]

_Entry = tuple[float, int, Request]
_SWEEP_AT = 32


class _Lane:
    """A heap of requests that skips those which no longer wait."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[_Entry] = []

    def push(self, key: float, request: Request) -> None:
        heappush(self.entries, (key, request.number, request))

    def head(self) -> Request | None:
        while self.entries and self.entries[0][2].state is not State.QUEUED:
            heappop(self.entries)
        return self.entries[0][2] if self.entries else None

    def sweep(self) -> None:
        self.entries = [entry for entry in self.entries if entry[2].state is State.QUEUED]
        heapify(self.entries)


Taken = tuple[list[Request], list[Request]]


@dataclass(frozen=True, slots=True)
class Times:
    """How deadlines are judged: before `hopeless_s` none can be met, before `doubtful_s` probably not in this batch."""

    now_s: float = -math.inf
    hopeless_s: float = -math.inf
    doubtful_s: float = -math.inf


class Bucket:
    """The waiting requests of one row shape."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.rows = 0
        self.cost = 0.0
        self._levels: dict[int, _Lane] = {}
        self._deadlines = _Lane()
        self._gone = 0

    def push(self, request: Request) -> None:
        """Let `request` wait here."""
        request.state = State.QUEUED
        self._levels.setdefault(request.priority, _Lane()).push(request.arrived_s, request)
        if request.deadline_s < math.inf:
            self._deadlines.push(request.deadline_s, request)
        self.rows += 1
        self.cost += request.cost

    def drop(self, request: Request, state: State) -> None:
        """Take one request out of the order, wherever it stands, into `state`."""
        request.state = state
        self.rows -= 1
        self.cost = self.cost - request.cost if self.rows else 0.0
        self._gone += 1
        if self._gone > _SWEEP_AT + self.rows:
            self._sweep()

    def _sweep(self) -> None:
        self._gone = 0
        for lane in (*self._levels.values(), self._deadlines):
            lane.sweep()
        self._levels = {level: lane for level, lane in self._levels.items() if lane.entries}

    def head(self) -> Request | None:
        """The request that is next by rank."""
        if len(self._levels) == 1:  # nearly always, and asked for every row of a batch
            return next(iter(self._levels.values())).head()
        heads = (lane.head() for lane in self._levels.values())
        return min((head for head in heads if head), key=_order, default=None)

    def oldest_s(self) -> float:
        """Arrival time of the request that has waited longest, of any priority."""
        heads = (lane.head() for lane in self._levels.values())
        return min((head.arrived_s for head in heads if head), default=math.inf)

    def deadline_s(self) -> float:
        """The earliest deadline of all that wait."""
        head = self._deadlines.head()
        return head.deadline_s if head else math.inf

    def take(self, rows: int, max_cost: float, times: Times) -> Taken:
        """Take up to `rows` requests in order of rank, within `max_cost`; return them and those to be given up.

        Requests that a batch of this size will probably answer in time go first. Those with a doubtful chance wait for
        a smaller batch and run when nobody has a better one, else under overload every batch would be spent on requests
        that expire while it runs. The hopeless, which not even a batch of one can answer in time, are given up to make
        room; if there are only hopeless ones they are run after all: an estimate alone must not stop the service.
        """
        chances = _Chances(rows, max_cost, times)
        while chances.wants_more and (head := self.head()) is not None and chances.add(head):
            self.drop(head, State.RUNNING)
        taken, back, given_up = chances.decide()
        if back:
            # Their old entries must be gone before they come back, or each would stand there twice.
            self._sweep()
            for request in back:
                self.push(request)
        return taken, given_up


class _Chances:
    """Sorts the heads of a bucket by their chance to be answered in time."""

    def __init__(self, rows: int, max_cost: float, times: Times) -> None:
        self._rows, self._budget, self._times = rows, max_cost, times
        self._good: list[Request] = []
        self._doubtful: list[Request] = []
        self._hopeless: list[Request] = []

    @property
    def wants_more(self) -> bool:
        return len(self._good) < self._rows

    def add(self, request: Request) -> bool:
        """Sort `request` in; False if it has a good chance but does not fit into this batch's budget."""
        if request.deadline_s < self._times.hopeless_s:
            self._hopeless.append(request)
        elif request.deadline_s < self._times.doubtful_s:
            self._doubtful.append(request)
        elif request.cost > self._budget and self._good:
            return False
        else:
            self._good.append(request)
            self._budget -= request.cost
        return True

    def decide(self) -> tuple[list[Request], list[Request], list[Request]]:
        """The requests to run, to put back and to give up."""
        if self._good:
            return self._good, self._doubtful, self._hopeless
        if self._doubtful:
            return *self._fitting(self._doubtful), self._hopeless
        expired = [request for request in self._hopeless if request.deadline_s <= self._times.now_s]
        return *self._fitting(
            [request for request in self._hopeless if request.deadline_s > self._times.now_s]
        ), expired

    def _fitting(self, requests: list[Request]) -> tuple[list[Request], list[Request]]:
        """The first of `requests` that fit into one batch, and the others."""
        count, budget = 0, self._budget
        for request in requests[: self._rows]:
            budget -= request.cost
            if budget < 0 and count:
                break
            count += 1
        return requests[:count], requests[count:]


class Queue:
    """All buckets; requests of every shape come out by rank, in batches of one shape."""

    def __init__(self) -> None:
        self._buckets: dict[Hashable, Bucket] = {}
        self.rows = 0

    def push(self, request: Request) -> None:
        """Let `request` wait in the bucket of its `key`."""
        bucket = self._buckets.get(request.key)
        if bucket is None:
            bucket = self._buckets[request.key] = Bucket(request.key)
        bucket.push(request)
        self.rows += 1

    def discard(self, request: Request) -> None:
        """Take out a request that is withdrawn or expired, if it waits here."""
        if request.state is State.QUEUED:
            bucket = self._buckets[request.key]
            bucket.drop(request, State.DONE)
            self._settle(bucket, 1)

    def take(self, bucket: Bucket, rows: int, max_cost: float = math.inf, times: Times | None = None) -> Taken:
        """See `Bucket.take`; without `times` every request has a good chance."""
        before = bucket.rows
        taken = bucket.take(rows, max_cost, times or Times())
        self._settle(bucket, before - bucket.rows)
        return taken

    def _settle(self, bucket: Bucket, left: int) -> None:
        self.rows -= left
        # A stream of ever new shapes must not leave an empty bucket for each.
        if not bucket.rows:
            del self._buckets[bucket.key]

    def by_urgency(self) -> Iterator[Bucket]:
        """The buckets, the one with the lowest-ranked head first."""
        if len(self._buckets) < 2:
            return iter(tuple(self._buckets.values()))
        heads = [(bucket.head(), bucket) for bucket in self._buckets.values()]
        ranked = sorted(((head.rank_s, head.number, bucket) for head, bucket in heads if head), key=lambda row: row[:2])
        return (bucket for _, _, bucket in ranked)


def _order(request: Request) -> tuple[float, int]:
    return request.rank_s, request.number
