"""Microbatches on their way: let in, given to workers, passed on, put together.

    pending requests ──admit──▶ ready ──give──▶ in flight ──answer──▶ ready for the next stage ... ──▶ output

A microbatch that is ready or in flight owns the slot with its value. It keeps it until its stage has answered, so when
a worker is lost, its microbatches are simply ready again. Only a few are let in at a time (`depth` per worker): enough
that no worker waits for the controller, few enough that memory stays small and late changes of layout find them soon.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from labkit.errors import DeadlineExceeded, LabkitError, ModelFailed, WorkerDied
from labkit.records import Recorder, StepOutcome
from labkit.sharding.crew import Crew
from labkit.sharding.failure import stage_failed
from labkit.sharding.hand import Flight, Hand, Seat, Store
from labkit.sharding.job import Done, Failed, Forget, Grow, Job, Key, Room
from labkit.sharding.ledger import Ledger
from labkit.sharding.nested import join
from labkit.sharding.patience import Expectations
from labkit.sharding.request import Microbatch, Request
from labkit.sharding.sequence import SequenceState
from labkit.sharding.settings import Settings
from labkit.sharding.steps import StepLog

__all__ = ["Traffic"]

_UNKNOWN_S = 0.05
_SWEEP_AT = 1024
_RESTARTS = 8
_REMEDY = "Give the request more time, or send fewer at once."


class Traffic:
    """All work of one pipeline. Its owner locks it."""

    def __init__(
        self,
        crew: Crew,
        store: Store,
        ledger: Ledger,
        records: Recorder,
        expectations: Expectations,
        stateful: Sequence[bool],
        settings: Settings,
    ) -> None:
        self._crew, self._store, self._ledger = crew, store, ledger
        self._expectations, self._stateful, self._settings = expectations, stateful, settings
        self._steps = StepLog(records, settings.microbatch_rows, self._queued_rows)
        self._pending: list[tuple[float, int, Request]] = []
        self._deadlines: list[tuple[float, int, Request]] = []
        self._ready: list[Microbatch] = []
        self._under_way = 0
        self._written: dict[int, int] = {}
        self.waiting = 0
        self.service_s = _UNKNOWN_S

    def waiting_at(self, stage: int) -> int:
        """Microbatches that `stage` could take now."""
        layers = self._crew.layout.layers_of(stage)
        return sum(microbatch.at in layers for microbatch in self._ready)

    def _queued_rows(self, first: int, last: int) -> int:
        return sum(microbatch.rows for microbatch in self._ready if first <= microbatch.at < last)

    def accept(self, request: Request) -> None:
        """Let a request wait for its turn."""
        self._ledger.open(request)
        self.waiting += 1
        if request.deadline_s < math.inf:
            self._watch(request)
        if request.sequence is None:
            self._queue(request)
            return
        request.sequence.waiting.append(request)
        self._queue(request.sequence.start())

    def _watch(self, request: Request) -> None:
        if len(self._deadlines) > _SWEEP_AT + 2 * len(self._ledger):
            # Long deadlines of requests that were answered quickly would pile up here.
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapify(self._deadlines)
        heappush(self._deadlines, (request.deadline_s, request.number, request))

    def _queue(self, request: Request | None) -> None:
        if request is not None:
            heappush(self._pending, (request.rank_s, request.number, request))

    def pump(self) -> None:
        """Do whatever can be done now."""
        self._admit()
        for microbatch in tuple(self._ready):
            # A request that failed a moment ago took its other microbatches out.
            seat = None if microbatch.request.done else self._seat_for(microbatch)
            if seat is not None and seat.hand is not None:
                self._ready.remove(microbatch)
                self._give(microbatch, seat.hand)

    def _admit(self) -> None:
        window = self._settings.depth * max(1, self._crew.workers)
        while self._pending and self._under_way < window:
            request = self._pending[0][2]
            if request.done or not (request.entered or self._begin(request)):
                heappop(self._pending)
                continue
            self.waiting -= not request.entered
            microbatch = request.enter()
            if request.entered == len(request.parts):
                heappop(self._pending)
            self._enter(microbatch)

    def _begin(self, request: Request) -> bool:
        request.ready_s = time.perf_counter()
        return request.future.set_running_or_notify_cancel()

    def _enter(self, microbatch: Microbatch) -> None:
        request = microbatch.request
        try:
            slot, size_bytes = self._store.put(request.parts[microbatch.index])
        except Exception as error:
            problem = f"the payload cannot be sent: {type(error).__name__}: {error}"
            self.fail(request, ModelFailed(problem, "Give tensors, arrays and plain values."))
            return
        microbatch.slot, microbatch.source_bytes = slot, size_bytes
        request.copied_bytes += size_bytes
        self._under_way += 1
        insort(self._ready, microbatch, key=_rank)

    def _seat_for(self, microbatch: Microbatch) -> Seat | None:
        layout = self._crew.layout
        stage = layout.stage_of(microbatch.at)
        layers = range(microbatch.at, layout.boundaries[stage + 1])
        seats = [self._crew.seats[number] for number in layout.seats[stage]]
        sequence = microbatch.request.sequence
        if sequence is not None:
            seats = self._pinned(sequence, stage, seats)
        free = [
            seat for seat in seats if seat.hand and seat.holds(layers) and len(seat.hand.jobs) < self._settings.depth
        ]
        return min(free, key=lambda seat: len(seat.hand.jobs) if seat.hand else 0, default=None)

    def _pinned(self, sequence: SequenceState, stage: int, seats: list[Seat]) -> list[Seat]:
        """The seat that has the sequence's state, as long as the stage has it."""
        kept = [seat for seat in seats if seat.number == sequence.seats.get(stage)]
        return kept or seats

    def _give(self, microbatch: Microbatch, hand: Hand) -> None:
        layout, request = self._crew.layout, microbatch.request
        stage = layout.stage_of(microbatch.at)
        first, last = microbatch.at, layout.boundaries[stage + 1]
        kind = (first, last, microbatch.source_bytes.bit_length(), microbatch.replay)
        limit_s = self._expectations.limit_s(kind, first=kind not in hand.warm, retries=len(microbatch.killed))
        key = Key(request.number, microbatch.index, stage, self._crew.epoch)
        target = self._store.reserve(self._written.get(last, microbatch.source_bytes))
        job = Job(key, first, last, microbatch.slot, target, *self._state_of(microbatch, first, last))
        if request.sequence is not None and hand.seat is not None:
            request.sequence.seats[stage] = hand.seat.number
        hand.give(Flight(key, microbatch, first, last, target, kind, limit_s), job, self._store)

    def _state_of(self, microbatch: Microbatch, first: int, last: int) -> tuple[Any, ...]:
        sequence = microbatch.request.sequence
        if sequence is None or not (microbatch.replay or any(self._stateful[first:last])):
            return ()
        return sequence.number, sequence.position, microbatch.replay

    def done(self, hand: Hand, message: Done) -> None:
        """Take a stage's answer and pass it on."""
        flight = self._landed(hand, message.key)
        if flight is None:
            return
        microbatch, request = flight.microbatch, flight.microbatch.request
        step = self._steps.add(hand, flight, message.started_s, message.finished_s, "ok", message)
        self._expectations.add(flight.kind, message.finished_s - message.started_s)
        self._written[flight.last] = max(message.written_bytes, self._written.get(flight.last, 0) * 9 // 10)
        if flight.kind in hand.warm and not microbatch.replay:
            self._crew.measured(flight, message)
        hand.warm.add(flight.kind)
        if request.done:
            self._end(microbatch, flight.target)
            return
        if math.isnan(request.started_s):
            request.started_s = message.started_s
        request.step = step
        self._remember(flight)
        self._store.free(microbatch.slot)
        microbatch.slot, microbatch.source_bytes, microbatch.at = flight.target, message.written_bytes, flight.last
        microbatch.killed = []
        if flight.last == len(self._stateful):
            self._arrived(microbatch)
        else:
            insort(self._ready, microbatch, key=_rank)

    def _remember(self, flight: Flight) -> None:
        """Keep what a stage was given, for a sequence whose state may have to be rebuilt."""
        microbatch = flight.microbatch
        sequence = microbatch.request.sequence
        if sequence is None or not (flight.first == 0 or any(self._stateful[flight.first : flight.last])):
            return
        given = self._store.take(microbatch.slot)
        if microbatch.replay:
            sequence.history.replace(flight.first, given)
            microbatch.replay = "all" if microbatch.replay == "all" else ""
        else:
            sequence.history.add(flight.first, sequence.position, given)

    def _arrived(self, microbatch: Microbatch) -> None:
        request = microbatch.request
        output = self._store.take(microbatch.slot)
        request.copied_bytes += microbatch.source_bytes
        self._end(microbatch)
        request.put(microbatch.index, output[-1] if microbatch.replay == "all" else output)
        if request.complete:
            self._complete(request)

    def _complete(self, request: Request) -> None:
        try:
            output = join(*request.outputs())
        except Exception as error:
            problem = f"the outputs of {len(request.parts)} microbatches cannot be joined: {error}"
            self.fail(request, ModelFailed(problem, "Return rows along the leading axis, or set microbatch_rows=None."))
            return
        self.service_s += 0.2 * (time.perf_counter() - request.ready_s - self.service_s)
        self._ledger.answer(request, output)
        self._next_step(request, ok=True)

    def grow(self, hand: Hand, message: Grow) -> None:
        """Give a worker a larger slot for its outcome."""
        if not hand.jobs or hand.jobs[0].key != message.key:
            return
        flight = hand.jobs[0]
        self._store.free(flight.target)
        flight.target = self._store.reserve(message.size_bytes)
        hand.show(self._store, flight.target)
        hand.tell(Room(message.key, flight.target))

    def failed(self, hand: Hand, message: Failed) -> None:
        """Take a stage's error: the request fails, the worker goes on."""
        flight = self._landed(hand, message.key)
        if flight is None:
            return
        microbatch, request = flight.microbatch, flight.microbatch.request
        if message.kind == "behind" and not request.done:
            self._store.free(flight.target)
            self._rebuild(microbatch)
            return
        if message.kind == "lost" and not request.done:
            self._store.free(flight.target)
            self._restart(microbatch, message.text)
            return
        outcome: StepOutcome = "out_of_memory" if message.kind == "out_of_memory" else "failed"
        request.step = self._steps.add(hand, flight, message.started_s, message.finished_s, outcome)
        self._end(microbatch, flight.target)
        self.fail(request, stage_failed(message, self._crew.describe(hand)))

    def _restart(self, microbatch: Microbatch, reason: str) -> None:
        """Begin anew with the request's rows: the value has gone with the host where it lay."""
        self._store.free(microbatch.slot)
        self._under_way -= 1
        microbatch.at, microbatch.replay, microbatch.slot = 0, "", -1
        microbatch.restarts += 1
        if microbatch.restarts < _RESTARTS:
            self._enter(microbatch)
            return
        problem = f"the values of a microbatch were lost {microbatch.restarts} times, the last one so: {reason}"
        self.fail(microbatch.request, WorkerDied(problem, "Look at the hosts and the network between them."))

    def _rebuild(self, microbatch: Microbatch) -> None:
        """Let a worker that does not have the sequence's state run its inputs again, and then this step."""
        request, sequence = microbatch.request, microbatch.request.sequence
        assert sequence is not None
        value = self._store.take(microbatch.slot)
        self._store.free(microbatch.slot)
        rebuild = sequence.history.rebuild(microbatch.at, sequence.position, value, request.parts[0])
        microbatch.slot, microbatch.source_bytes = self._store.put(rebuild.inputs)
        microbatch.at, microbatch.replay = rebuild.layer, "all" if rebuild.whole else "last"
        insort(self._ready, microbatch, key=_rank)

    def _landed(self, hand: Hand, key: Key) -> Flight | None:
        """Take the job that an answer is for; None for an answer from before a loss."""
        if not hand.jobs or hand.jobs[0].key != key:
            return None
        return hand.land()

    def lost(self, hand: Hand, reason: Callable[[], str]) -> bool:
        """Make the jobs of a lost worker ready again; whether the one that it was running is to blame, not its seat.

        Each loss counts against the microbatch that was running; when it has cost too many workers, it fails.
        """
        blamed = None if hand.remote.blameless else hand.running
        flights, hand.jobs = list(hand.jobs), deque()
        if blamed is not None:
            blamed.microbatch.killed.append(hand.seat.number if hand.seat else -1)
            self._steps.add(hand, blamed, hand.clock_s, time.perf_counter(), "failed")
        for flight in flights:
            if flight.microbatch.request.done:
                self._end(flight.microbatch, flight.target)
                continue
            self._store.free(flight.target)
            insort(self._ready, flight.microbatch, key=_rank)
        if blamed is None or len(blamed.microbatch.killed) < self._settings.budget.kills:
            return False
        self._quarantine(blamed, reason())
        return True

    def _quarantine(self, flight: Flight, reason: str) -> None:
        microbatch = flight.microbatch
        self._crew.forgive(microbatch.killed[:-1])
        if not microbatch.request.done:
            problem = (
                f"microbatch {microbatch.index} of request {microbatch.request.number} has killed "
                f"{len(microbatch.killed)} workers of stage {flight.key.stage}, the last one so: {reason}"
            )
            self.fail(microbatch.request, WorkerDied(problem, "Look at this input; the pipeline goes on without it."))

    def fail(self, request: Request, error: LabkitError) -> None:
        """End a request with an error, and take what is left of it out of the way."""
        if self._ledger.fail(request, error):
            self._abandon(request)
            self._next_step(request, ok=False)

    def withdraw(self, request: Request) -> None:
        """End a request that its sender has cancelled before it began."""
        if self._ledger.withdraw(request):
            self._next_step(request, ok=False)

    def expire(self, now_s: float) -> None:
        """End the requests whose time is up."""
        while self._deadlines and self._deadlines[0][0] <= now_s:
            request = heappop(self._deadlines)[2]
            limit_ms = (request.deadline_s - request.arrived_s) * 1000
            if not request.done:
                self.fail(request, DeadlineExceeded(f"the time limit of {limit_ms:.0f} ms has passed", _REMEDY))

    @property
    def next_deadline_s(self) -> float:
        """When the next request's time is up."""
        return self._deadlines[0][0] if self._deadlines else math.inf

    def _abandon(self, request: Request) -> None:
        for microbatch in [one for one in self._ready if one.request is request]:
            self._ready.remove(microbatch)
            self._end(microbatch)

    def _next_step(self, request: Request, *, ok: bool) -> None:
        self.waiting -= not request.entered
        if request.sequence is None:
            return
        if not ok:
            # Some stages may have seen the failed step; a state that merely looks right must not be used.
            self._crew.tell_all(Forget(request.sequence.number))
        self._queue(request.sequence.ended(request, ok=ok))

    def _end(self, microbatch: Microbatch, *slots: int) -> None:
        for slot in (microbatch.slot, *slots):
            self._store.free(slot)
        microbatch.slot = -1
        self._under_way -= 1


def _rank(microbatch: Microbatch) -> tuple[float, int, int]:
    return microbatch.rank
