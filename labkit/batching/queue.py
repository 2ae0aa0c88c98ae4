"""What waits for a worker: one bucket per row shape, each in order of rank.

Buckets keep shapes apart, so a batch never stops at the first row of another shape, and a bucket that waits for company
does not hold up its neighbours. Within a bucket, requests of one priority level are ordered by arrival, and the level
whose head has the smallest rank goes first. Those that were passed over form levels of their own. A request that was
withdrawn leaves its entry behind; entries are dropped when they surface, and swept when they outnumber the living.

The queue is not locked; its owner does that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from math import inf

from labkit.batching.request import DONE, QUEUED, RUNNING, Request, State

__all__ = ["Bucket", "Queue", "Taken", "Times"]

_SWEEP_AT = 32


class _Lane:
    """The requests of one level in order of arrival, among them some that no longer wait."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: deque[Request] = deque()

    def insert(self, request: Request) -> None:
        """Put in a straggler, who has overtaken or was overtaken on the way here; seldom by many."""
        entries, place = self.entries, len(self.entries)
        while place and _arrival(entries[place - 1]) > _arrival(request):
            place -= 1
        entries.insert(place, request)

    def head(self) -> Request | None:
        entries = self.entries
        while entries and entries[0].state is not QUEUED:
            entries.popleft()
        return entries[0] if entries else None

    def take(self, rows: int) -> list[Request]:
        """Take out the first `rows`, and whatever before them no longer waits."""
        entries = self.entries
        taken: list[Request] = []
        while entries and len(taken) < rows:
            request = entries.popleft()
            if request.state is QUEUED:
                taken.append(request)
        return taken

    def sweep(self) -> None:
        self.entries = deque([one for one in self.entries if one.state is QUEUED])


class _Deadlines:
    """A heap of those with a deadline, among them some that no longer wait."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[float, int, Request]] = []

    def push(self, request: Request) -> None:
        heappush(self.entries, (request.deadline_s, request.number, request))

    def head(self) -> Request | None:
        while self.entries and self.entries[0][2].state is not QUEUED:
            heappop(self.entries)
        return self.entries[0][2] if self.entries else None

    def sweep(self) -> None:
        self.entries = [entry for entry in self.entries if entry[2].state is QUEUED]
        heapify(self.entries)


Taken = tuple[list[Request], list[Request]]


@dataclass(frozen=True, slots=True)
class Times:
    """How deadlines are judged: before `hopeless_s` none can be met, before `doubtful_s` probably not in this batch."""

    now_s: float = -inf
    hopeless_s: float = -inf
    doubtful_s: float = -inf


class Bucket:
    """The waiting requests of one row shape."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.rows = 0
        self.cost = 0.0
        # By priority, and by ("passed over", priority).
        self._levels: dict[Hashable, _Lane] = {}
        self._deadlines = _Deadlines()
        self._gone = 0

    def push(self, request: Request) -> None:
        """Let `request` wait here."""
        request.state = QUEUED
        lane = self._levels.get(request.priority) or self._opened(request.priority)
        # Nearly all come in order of arrival.
        if not lane.entries or lane.entries[-1].arrived_s < request.arrived_s:
            lane.entries.append(request)
        else:
            lane.insert(request)
        if request.deadline_s != inf:
            self._deadlines.push(request)
        self.rows += 1
        self.cost += request.cost

    def _opened(self, level: Hashable) -> _Lane:
        lane = self._levels[level] = _Lane()
        return lane

    def pass_over(self, count: int, ageing_s: float) -> None:
        """Let the first `count` by rank stand back as if one priority level lower, each of them once and no more."""
        for request in tuple(islice(self._waiting(), count)):
            if request.passed_over:
                continue
            # Whoever is among the first of all is the first of its lane, once those before it have left.
            lane = self._levels[request.priority]
            first = lane.head()
            assert first is request
            lane.entries.popleft()
            request.passed_over = True
            request.rank_s += ageing_s
            level = ("passed over", request.priority)
            (self._levels.get(level) or self._opened(level)).insert(request)

    def drop(self, requests: Sequence[Request], state: State) -> None:
        """Take requests out of the order, wherever they stand, into `state`; their entries stay behind."""
        self._let_go(requests, state)
        self._gone += len(requests)
        if self._gone > _SWEEP_AT + self.rows:
            self._sweep()

    def _let_go(self, requests: Sequence[Request], state: State) -> None:
        for request in requests:
            request.state = state
        self.rows -= len(requests)
        self.cost = self.cost - sum([request.cost for request in requests]) if self.rows else 0.0

    def _sweep(self) -> None:
        self._gone = 0
        self._deadlines.sweep()
        for lane in self._levels.values():
            lane.sweep()
        self._levels = {level: lane for level, lane in self._levels.items() if lane.entries}

    def head(self) -> Request | None:
        """The request that is next by rank."""
        heads = (lane.head() for lane in self._levels.values())
        return min((head for head in heads if head), key=_order, default=None)

    def arrivals_s(self) -> list[float]:
        """Arrival times of all that wait, by rank."""
        return [request.arrived_s for request in self._waiting()]

    def oldest_s(self) -> float:
        """Arrival time of the request that has waited longest, of any priority."""
        heads = (lane.head() for lane in self._levels.values())
        return min((head.arrived_s for head in heads if head), default=inf)

    def deadline_s(self) -> float:
        """The earliest deadline of all that wait."""
        head = self._deadlines.head()
        return head.deadline_s if head else inf

    def take(self, rows: int, max_cost: float = inf, times: Times | None = None) -> Taken:
        """Take up to `rows` requests in order of rank, within `max_cost`; return them and those to be given up.

        Requests that a batch of this size will probably answer in time go first. Those with a doubtful chance wait for
        a smaller batch and run when nobody has a better one, else under overload every batch would be spent on requests
        that expire while it runs. The hopeless, which not even a batch of one can answer in time, are given up to make
        room; if there are only hopeless ones they are run after all: an estimate alone must not stop the service.
        Without `times` every request has a good chance.
        """
        if times is None and max_cost == inf and len(self._levels) == 1 and not self._deadlines.entries:
            # The usual case: whoever is first goes, and no entry stays behind to be swept.
            (lane,) = self._levels.values()
            first = lane.take(rows)
            self._let_go(first, RUNNING)
            return first, []
        chances = _Chances(rows, max_cost, times or Times())
        chances.sort(self._in_order())
        taken, given_up = chances.decide()
        self.drop(taken, RUNNING)
        self.drop(given_up, RUNNING)
        return taken, given_up

    def _waiting(self) -> Iterator[Request]:
        return (request for request in self._in_order() if request.state is QUEUED)

    def _in_order(self) -> Iterable[Request]:
        """All entries by rank, among them some that no longer wait."""
        lanes = [lane.entries for lane in self._levels.values()]
        return lanes[0] if len(lanes) == 1 else merge(*lanes, key=_order)


class _Chances:
    """Sorts the requests of a bucket by their chance to be answered in time."""

    def __init__(self, rows: int, max_cost: float, times: Times) -> None:
        self._rows, self._budget, self._times = rows, max_cost, times
        self._good: list[Request] = []
        self._doubtful: list[Request] = []
        self._hopeless: list[Request] = []

    def sort(self, entries: Iterable[Request]) -> None:
        """Sort in those who wait until `rows` have a good chance, or the next of these exceeds the budget."""
        good, hopeless_s, doubtful_s = self._good, self._times.hopeless_s, self._times.doubtful_s
        for request in entries:
            if request.state is not QUEUED:
                continue
            if request.deadline_s < hopeless_s:
                self._hopeless.append(request)
            elif request.deadline_s < doubtful_s:
                self._doubtful.append(request)
            elif request.cost > self._budget and good:
                return
            else:
                good.append(request)
                self._budget -= request.cost
                if len(good) == self._rows:
                    return

    def decide(self) -> Taken:
        """The requests to run and those to give up; all others go on waiting."""
        if self._good:
            return self._good, self._hopeless
        if self._doubtful:
            return self._fitting(self._doubtful), self._hopeless
        now_s = self._times.now_s
        expired = [request for request in self._hopeless if request.deadline_s <= now_s]
        return self._fitting([request for request in self._hopeless if request.deadline_s > now_s]), expired

    def _fitting(self, requests: list[Request]) -> list[Request]:
        """The first of `requests` that fit into one batch."""
        count, budget = 0, self._budget
        for request in requests[: self._rows]:
            budget -= request.cost
            if budget < 0 and count:
                break
            count += 1
        return requests[:count]


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
        if request.state is QUEUED:
            bucket = self._buckets[request.key]
            bucket.drop([request], DONE)
            self._settle(bucket, 1)

    def take(self, bucket: Bucket, rows: int, max_cost: float = inf, times: Times | None = None) -> Taken:
        """See `Bucket.take`."""
        before = bucket.rows
        taken = bucket.take(rows, max_cost, times)
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


def _arrival(request: Request) -> tuple[float, int]:
    return request.arrived_s, request.number
