"""The workers of a pipeline: who sits where, who is lost, who takes the place, and where the model is cut.

Everything follows from what each seat *should* hold (its layers in the present layout, and in the one that is being
prepared). `_reconcile` sends a worker what it lacks; `_settle` looks whether a change can be completed. A new layout is
prepared beside the old one, which goes on working, and taken when everybody has loaded; nothing is drained.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count, pairwise
from typing import Any

from labkit.errors import SettingError, WorkerDied
from labkit.sharding.carrier import Carrier
from labkit.sharding.hand import Flight, Hand, Seat
from labkit.sharding.health import Health
from labkit.sharding.job import Done, Load, Loaded, Tune
from labkit.sharding.layout import Layout, check_boundaries
from labkit.sharding.pace import Pace
from labkit.sharding.recovery import Budget, Remedy, decide
from labkit.sharding.replan import Replan, Survivor

__all__ = ["Crew"]


class Crew:
    """Seats, workers and layout. Its owner locks it; `ask_for_worker(seat)` is answered later through `arrived`."""

    def __init__(
        self,
        carrier: Carrier,
        layout: Layout,
        devices: Sequence[str],
        *,
        slowdowns: Sequence[float],
        budget: Budget,
        pace: Pace,
        replan: Replan | None,
        ask_for_worker: Callable[[int | None], None],
    ) -> None:
        self._carrier, self._budget = carrier, budget
        self._replan = replan or pace.best_for
        self._ask_for_worker = ask_for_worker
        self._numbers = count(sum(len(seats) for seats in layout.seats))
        self.layout = layout
        self.target: Layout | None = None
        self.pace = pace
        self.seats: dict[int, Seat] = {}
        for stage, numbers in enumerate(layout.seats):
            for number in numbers:
                self.seats[number] = Seat(number, devices[stage], slowdowns[stage])
        self.spares: list[Hand] = []
        self.hands: list[Hand] = []
        self._growing: list[tuple[int, int, Future[None]]] = []
        self._retiring: list[Hand] = []
        self.completions: list[Callable[[], None]] = []
        self.started = False
        self.failure = ""
        self.epoch = self.losses = self.moves = 0
        self.notes: deque[str] = deque(maxlen=5)

    @property
    def workers(self) -> int:
        """How many seats the layout has."""
        return sum(len(seats) for seats in self.layout.seats)

    @property
    def health(self) -> Health:
        """Whether every stage has its workers, at this moment."""
        if self.failure:
            return Health.FAILED
        layout = self.layout
        whole = all(
            self.seats[number].holds(layout.layers_of(stage))
            for stage, numbers in enumerate(layout.seats)
            for number in numbers
        )
        return Health.RUNNING if whole else Health.RECOVERING

    def describe(self, hand: Hand) -> str:
        """Name a worker's stage for a message."""
        stage = self.layout.stage_at(hand.seat.number) if hand.seat else None
        return f"stage {stage} on {hand.seat.device}" if hand.seat else "a worker"

    def arrived(self, hand: Hand, number: int | None) -> None:
        """Give a new worker its seat; without one it waits as a spare."""
        self.hands.append(hand)
        if number is None:
            self.spares.append(hand)
            return
        seat = self.seats.get(number)
        if seat is None or seat.hand is not None:
            self._retiring.append(hand)
        else:
            seat.awaited = False
            self._seat(hand, seat)

    def not_arrived(self, number: int | None, reason: str) -> None:
        """Note that a worker could not be started."""
        seat = self.seats.get(number) if number is not None else None
        if seat is not None:
            seat.awaited = False
            self._vacant(seat, lambda: f"no worker could be started: {reason}")

    def loaded(self, hand: Hand, message: Loaded) -> None:
        """Note what a worker holds now."""
        hand.layers, hand.loading = frozenset(message.layers), None
        hand.clock_s = time.perf_counter()
        if hand.seat is not None:
            self._reconcile(hand.seat)
        self._settle()

    def unloadable(self, hand: Hand, text: str) -> None:
        """Note that a worker cannot load what it should; before the start that is the end."""
        hand.condemned = f"its layers cannot be loaded: {text}"
        if not self.started:
            self.give_up(f"{self.describe(hand)} cannot be loaded: {text}")

    def lost(self, hand: Hand, reason: Callable[[], str], *, counted: bool) -> None:
        """Note the end of a worker, and do what is to be done about it; `counted` against its seat, or not."""
        self.hands.remove(hand)
        self.losses += 1
        self.epoch += 1
        seat, hand.seat = hand.seat, None
        if hand in self.spares:
            self.spares.remove(hand)
            self._ask_for_worker(None)
        elif hand in self._retiring:
            self._retiring.remove(hand)
        elif seat is not None and seat.hand is hand:
            seat.hand = None
            self._vacant(seat, reason, counted=counted)

    def _vacant(self, seat: Seat, reason: Callable[[], str], *, counted: bool = True) -> None:
        now_s = time.perf_counter()
        if counted:
            seat.losses.add(now_s)
        self.pace.pause()
        stage = self.layout.stage_at(seat.number)
        if stage is None:
            self._stop_growing(lambda number: number == seat.number, reason())
            return
        remedy = decide(
            exhausted=seat.losses.exhausted(self._budget, now_s),
            spares=len(self.spares),
            seats_of_stage=sum(self.seats[number].manned for number in self.layout.seats[stage]),
            other_stages=len(self._survivors()),
        )
        self._apply(remedy, seat, stage, reason)

    def _apply(self, remedy: Remedy, seat: Seat, stage: int, reason: Callable[[], str]) -> None:
        if remedy is Remedy.SPARE:
            self._seat(self.spares.pop(0), seat)
            self._ask_for_worker(None)
        elif remedy is Remedy.START:
            seat.awaited = True
            self._ask_for_worker(seat.number)
        elif remedy is Remedy.SHRINK:
            self._remove(seat, stage, reason())
        elif remedy is Remedy.REPARTITION:
            self._repartition(f"stage {stage} is lost ({reason()})")
        else:
            self.give_up(f"stage {stage} is lost and nobody is left: {reason()}")

    def _remove(self, seat: Seat, stage: int, reason: str) -> None:
        left = tuple(number for number in self.layout.seats[stage] if number != seat.number)
        self.layout = self.layout.with_seats(stage, left)
        self.pace.adopt(self.layout)
        del self.seats[seat.number]
        self.notes.append(f"stage {stage} goes on with {len(left)} workers: {reason}")
        if self.target is not None:
            self.target = None
            if len(self._survivors()) < len(self.layout):
                self._repartition(reason)
        self._changed()

    def _survivors(self) -> list[int]:
        """Stages that have, or will have, a worker."""
        layout = self.layout
        return [stage for stage in range(len(layout)) if any(self.seats[one].manned for one in layout.seats[stage])]

    def _repartition(self, reason: str) -> None:
        """Prepare a layout for the stages that are left."""
        stages = self._survivors()
        survivors = tuple(self._survivor(one) for one in stages)
        self._stop_growing(lambda number: True, reason)
        try:
            boundaries = check_boundaries(self._replan(survivors), self.layout.boundaries[-1], len(survivors))
        except Exception as error:
            self.give_up(f"{reason} and the model cannot be cut anew: {error}")
            return
        used = [one for one, (first, last) in zip(stages, pairwise(boundaries), strict=True) if first < last]
        cuts = tuple(sorted(set(boundaries)))
        self.notes.append(f"{reason}; cut anew at {cuts}")
        self.target = Layout(cuts, tuple(self.layout.seats[one] for one in used))
        self._changed()

    def _survivor(self, stage: int) -> Survivor:
        numbers = self.layout.seats[stage]
        return Survivor(stage, numbers, self.seats[numbers[0]].device, self.seats[numbers[0]].slowdown)

    def move(self, boundaries: Sequence[int]) -> None:
        """Prepare other boundaries for the same seats."""
        if self.target is None and not self._growing:
            self.target = Layout(tuple(boundaries), self.layout.seats)
            self._changed()

    def measured(self, flight: Flight, done: Done) -> None:
        """Take in what a step took, and re-balance if that is worth it."""
        self.pace.add(flight, done)
        if self.pace.is_due and self.target is None and self.health is Health.RUNNING:
            better = self.pace.better()
            if better is not None:
                self.move(better)

    def scale(self, stage: int, replicas: int) -> Future[None]:
        """Give a stage more or fewer workers; the future is done when they serve."""
        if len(self._survivors()) < len(self.layout):
            raise SettingError("the model is being cut anew after a loss", "Scale when snapshot() says RUNNING.")
        self.target = None
        future: Future[None] = Future()
        have = self.layout.seats[stage]
        if replicas <= len(have):
            self._retire(stage, have[replicas:])
            self.completions.append(partial(_fulfil, future))
            return future
        model = self.seats[have[0]]
        for number in [next(self._numbers) for _ in range(len(have), replicas)]:
            self.seats[number] = seat = Seat(number, model.device, model.slowdown)
            self._growing.append((number, stage, future))
            self._apply(Remedy.SPARE if self.spares else Remedy.START, seat, stage, str)
        return future

    def _retire(self, stage: int, numbers: Iterable[int]) -> None:
        gone = tuple(numbers)
        left = tuple(number for number in self.layout.seats[stage] if number not in gone)
        self.layout = self.layout.with_seats(stage, left)
        self.pace.adopt(self.layout)
        for number in gone:
            hand = self.seats.pop(number).hand
            if hand is not None:
                self._retiring.append(hand)
        self._changed()

    def take_retired(self) -> list[Hand]:
        """Workers that have finished and are no longer needed."""
        done = [hand for hand in self._retiring if not hand.jobs]
        for hand in done:
            self._retiring.remove(hand)
            if hand in self.hands:
                self.hands.remove(hand)
        return done

    def _stop_growing(self, concerned: Callable[[int], bool], reason: str) -> None:
        for entry in [one for one in self._growing if concerned(one[0])]:
            self._growing.remove(entry)
            hand = self.seats.pop(entry[0]).hand
            if hand is not None:
                self._retiring.append(hand)
            error = WorkerDied(f"the new worker cannot serve: {reason}", "Scale again.")
            self.completions.append(partial(_refuse, entry[2], error))

    def slow(self, stage: int, factor: float) -> None:
        """Let every worker of a stage do its work `factor` times over, also those that will replace them."""
        for number in self.layout.seats[stage]:
            self.seats[number].slowdown = factor
        self._tune()

    def forgive(self, seats: Sequence[int]) -> None:
        """Do not count the newest loss of these seats against them."""
        for number in seats:
            if number in self.seats:
                self.seats[number].losses.forgive()

    def forget_slot(self, number: int) -> None:
        """Note that a slot no longer exists."""
        for hand in self.hands:
            hand.forget_slot(number)

    def tell_all(self, message: Any) -> None:
        """Send something to every worker."""
        for hand in self.hands:
            hand.tell(message)

    def give_up(self, reason: str) -> None:
        """Nothing can run any more."""
        self.failure = self.failure or reason

    def _seat(self, hand: Hand, seat: Seat) -> None:
        hand.seat, seat.hand = seat, hand
        hand.tell(self._tuning(seat))
        self._reconcile(seat)

    def _reconcile(self, seat: Seat) -> None:
        """Let the seat's worker load what it should hold."""
        hand, wanted = seat.hand, self._wanted(seat)
        if hand is None or hand.loading is not None or hand.condemned or hand.layers == wanted:
            return
        refs = tuple(ref for ref in self._carrier.refs if ref.layer in wanted)
        hand.load(wanted, Load(refs, seat.device, self._carrier.weights))

    def _wanted(self, seat: Seat) -> frozenset[int]:
        wanted: set[int] = set()
        for layout in (self.layout, self.target):
            stage = layout.stage_at(seat.number) if layout is not None else None
            if layout is not None and stage is not None:
                wanted.update(layout.layers_of(stage))
        for number, stage, _ in self._growing:
            if number == seat.number:
                wanted.update(self.layout.layers_of(stage))
        return frozenset(wanted)

    def _changed(self) -> None:
        """Follow a change of what seats should hold."""
        for seat in list(self.seats.values()):
            self._reconcile(seat)
        self._tune()
        self._settle()

    def _settle(self) -> None:
        """Complete the changes for which everybody is ready."""
        if self.target is not None and self._holds_all(self.target):
            self._switch(self.target)
        for entry in list(self._growing):
            number, stage, future = entry
            if stage < len(self.layout) and self.seats[number].holds(self.layout.layers_of(stage)):
                self._growing.remove(entry)
                self.layout = self.layout.with_seats(stage, (*self.layout.seats[stage], number))
                self.pace.adopt(self.layout)
                self.epoch += 1
                self._tune()
                if not any(one[2] is future for one in self._growing):
                    self.completions.append(partial(_fulfil, future))

    def _holds_all(self, layout: Layout) -> bool:
        return all(
            self.seats[number].holds(layout.layers_of(stage))
            for stage, numbers in enumerate(layout.seats)
            for number in numbers
        )

    def _switch(self, target: Layout) -> None:
        """Take the prepared layout; what waits between two layers goes on from there."""
        before, self.layout, self.target = self.layout, target, None
        self.pace.adopt(target)
        self.epoch += 1
        if len(target) == len(before):
            self.moves += 1
            self.notes.append(f"boundaries moved from {before.boundaries} to {target.boundaries}")
        for number in [seat for seat in self.seats if target.stage_at(seat) is None and not self._is_growing(seat)]:
            hand = self.seats.pop(number).hand
            if hand is not None:
                self._retiring.append(hand)
        for seat in list(self.seats.values()):
            self._reconcile(seat)
        self._tune()

    def _is_growing(self, number: int) -> bool:
        return any(one[0] == number for one in self._growing)

    def _tuning(self, seat: Seat) -> Tune:
        return Tune(max(1, _cores() // max(1, len(self.seats))), seat.slowdown)

    def _tune(self) -> None:
        for seat in self.seats.values():
            if seat.hand is not None:
                seat.hand.tell(self._tuning(seat))


def _fulfil(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _refuse(future: Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
