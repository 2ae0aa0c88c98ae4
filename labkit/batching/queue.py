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
from heapq import heapify, heappop, heappush

from labkit.batching.request import Request, State

__all__ = ["Bucket", "Queue", "Taken"]

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

    def take(self, rows: int, max_cost: float, now_s: float, too_late_s: float) -> Taken:
        """Take up to `rows` requests in order of rank, within `max_cost`; return them and the hopeless ones.

        Hopeless is what has its deadline before `too_late_s`. It makes room for those that can still be answered in
        time; if there is none of those, the hopeless are run after all: an estimate alone must not stop the service.
        What has passed its deadline by `now_s` is never run.
        """
        taken: list[Request] = []
        hopeless: list[Request] = []
        budget = max_cost
        while len(taken) < rows and (head := self.head()) is not None:
            late = head.deadline_s < too_late_s
            if not late and head.cost > budget and taken:
                break
            self.drop(head, State.RUNNING)
            (hopeless if late else taken).append(head)
            budget -= 0.0 if late else head.cost
        return (taken, hopeless) if taken else self._run_after_all(hopeless, rows, max_cost, now_s)

    def _run_after_all(self, late: list[Request], rows: int, max_cost: float, now_s: float) -> Taken:
        expired = [request for request in late if request.deadline_s <= now_s]
        late = [request for request in late if request.deadline_s > now_s]
        chosen: list[Request] = []
        for request in late:
            max_cost -= request.cost
            if len(chosen) == rows or (max_cost < 0 and chosen):
                break
            chosen.append(request)
        # Their old entries must be gone before they come back, or each would stand there twice.
        self._sweep()
        for request in late[len(chosen) :]:
            self.push(request)
        return chosen, expired


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

    def take(
        self,
        bucket: Bucket,
        rows: int,
        max_cost: float = math.inf,
        now_s: float = -math.inf,
        too_late_s: float = -math.inf,
    ) -> Taken:
        """See `Bucket.take`."""
        before = bucket.rows
        taken = bucket.take(rows, max_cost, now_s, too_late_s)
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
