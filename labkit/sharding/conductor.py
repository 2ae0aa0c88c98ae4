"""The thread that runs a pipeline: hears the workers, keeps the clock, and leaves the rest to traffic and crew.

One lock guards both. It is held for bookkeeping and for copying values in and out, never while waiting, never while a
future's callbacks run, so `snapshot` answers at once whatever goes on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from threading import Condition, Lock, Thread, current_thread
from typing import Any

from labkit.errors import EngineClosed, LabkitError, ModelFailed, WorkerDied
from labkit.sharding.carrier import Carrier
from labkit.sharding.crew import Crew
from labkit.sharding.doorbell import Doorbell
from labkit.sharding.hand import Hand
from labkit.sharding.health import Health
from labkit.sharding.job import Done, Failed, Grow, Loaded, Pong, Unloadable, receiver
from labkit.sharding.ledger import Ledger
from labkit.sharding.patience import Patience
from labkit.sharding.remote import Remote
from labkit.sharding.traffic import Traffic

__all__ = ["Conductor"]

_log = logging.getLogger(__name__)

_PARTING_S = 0.5


class Conductor:
    """Runs the crew and the traffic that it leads; `entered` is how other threads get at them."""

    def __init__(self, carrier: Carrier, ledger: Ledger, patience: Patience, name: str) -> None:
        self._carrier, self._ledger, self._patience, self._name = carrier, ledger, patience, name
        self.open = True
        self._abandoned = False
        self._stopped = False
        self._closed = False
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._bell: Doorbell[Hand] = Doorbell()
        self._look_s = 0.0
        self._posts: deque[Callable[[], None]] = deque()
        self._starters: list[Thread] = []
        self._thread = Thread(target=self._live, name=f"{name}-conductor", daemon=True)

    def lead(self, crew: Crew, traffic: Traffic) -> None:
        """Run these."""
        self.crew, self.traffic = crew, traffic

    @property
    def health(self) -> Health:
        """How it is, at this moment."""
        return Health.CLOSED if self._stopped and not self.crew.failure else self.crew.health

    def start(self, workers: list[int | None]) -> None:
        """Start a worker for each seat (None: a spare) and return when all seats are ready.

        Raises `ModelFailed` if a stage cannot be loaded, or what starting a process raises; nothing is left then.
        """
        try:
            for number in workers:
                self._welcome(self._carrier.start(f"{self._name}-{len(self.crew.hands)}"), number)
            self._thread.start()
            with self._lock:
                limit_s = self._patience.load_s + 30.0
                self._changed.wait_for(lambda: self.crew.health is not Health.RECOVERING, limit_s)
                if self.crew.health is not Health.RUNNING:
                    reason = self.crew.failure or f"the stages were not ready within {limit_s:.0f} s"
                    raise ModelFailed(reason, "Run the stage in this process to see why.")
                self.crew.started = True
        except BaseException:
            self.close(drain=False)
            raise

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Hold the lock; then do what has become possible, and tell the futures."""
        with self._lock:
            yield
            self._follow_up()
            endings, completions = self._take()
        for ending in endings:
            ending.deliver()
        for complete in completions:
            complete()

    def ring(self) -> None:
        """Let the thread look at the clock again."""
        self._bell.ring()

    def ask_for_worker(self, number: int | None) -> None:
        """Start a worker in a thread of its own, for a fork server that has to start first takes seconds."""
        if self._stopped:
            return
        starter = Thread(target=self._start_worker, args=(number,), name=f"{self._name}-starter", daemon=True)
        self._starters = [one for one in self._starters if one.is_alive()] + [starter]
        starter.start()

    def _start_worker(self, number: int | None) -> None:
        try:
            remote = self._carrier.start(f"{self._name}-worker")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._post(lambda: self.crew.not_arrived(number, reason), None)
        else:
            self._post(lambda: self._welcome(remote, number), remote)

    def _post(self, call: Callable[[], None], remote: Remote | None) -> None:
        with self._lock:
            if not self._closed:
                self._posts.append(call)
                self._bell.ring()
                return
        if remote is not None:
            remote.close(0.0)

    def _welcome(self, remote: Remote, number: int | None) -> None:
        hand = Hand(remote)
        self._bell.watch(remote.connection, hand)
        self.crew.arrived(hand, number)

    def _live(self) -> None:
        try:
            while not self._stopped:
                speakers = self._bell.wait(self._sleep_s())
                with self.entered():
                    self._turn(speakers)
        except Exception as error:
            _log.exception("%s: the conductor failed", self._name)
            with self.entered():
                self.crew.give_up(f"the pipeline itself failed: {type(error).__name__}: {error}")
        finally:
            self._part()

    def _turn(self, speakers: list[Hand]) -> None:
        for hand in speakers:
            self._listen(hand)
        while self._posts:
            self._posts.popleft()()
        now_s = time.perf_counter()
        self.traffic.expire(now_s)
        if now_s >= self._look_s:
            self._look_around(now_s)

    def _follow_up(self) -> None:
        """What each change may have made possible or necessary."""
        if self.crew.failure:
            self._end_all(WorkerDied(f"the pipeline has failed: {self.crew.failure}", "Make a new one."))
        elif not self._stopped:
            self.traffic.pump()
        for hand in self.crew.take_retired():
            self._bell.forget(hand.remote.connection)
            self.crew.completions.append(partial(hand.remote.close, _PARTING_S))
        if self._abandoned and not self._ledger:
            self._stopped = True
            self._bell.ring()
        self._changed.notify_all()

    def _end_all(self, error: LabkitError) -> None:
        for request in self._ledger.live():
            self.traffic.fail(request, error)

    def _take(self) -> tuple[list[Any], list[Callable[[], None]]]:
        completions, self.crew.completions = self.crew.completions, []
        return self._ledger.take_endings(), completions

    def _listen(self, hand: Hand) -> None:
        if hand not in self.crew.hands:
            return
        try:
            message = receiver(hand.remote.connection)()
        except (EOFError, OSError):
            self._lose(hand)
        else:
            hand.heard_s, hand.pinged, hand.met = time.perf_counter(), False, True
            self._heed(hand, message)

    def _heed(self, hand: Hand, message: Any) -> None:
        if isinstance(message, Done):
            self.traffic.done(hand, message)
        elif isinstance(message, Failed):
            self.traffic.failed(hand, message)
        elif isinstance(message, Grow):
            self.traffic.grow(hand, message)
        elif isinstance(message, Loaded):
            self.crew.loaded(hand, message)
        elif isinstance(message, Unloadable):
            self.crew.unloadable(hand, message.text)
            self._kill(hand)
        elif not isinstance(message, Pong):
            raise TypeError(f"a worker sent {message!r}")

    def _look_around(self, now_s: float) -> None:
        """Look for workers that take too long. Whatever begins after a look is due only after the next one."""
        for hand in list(self.crew.hands):
            self._check(hand, now_s)
        dues_s = [due_s for hand in self.crew.hands if not hand.condemned for due_s, _ in self._dues(hand)]
        self._look_s = min([now_s + self._patience.shortest_s / 2, *dues_s])

    def _check(self, hand: Hand, now_s: float) -> None:
        """Kill a worker that takes too long; ask one that has nothing to do for a sign of life."""
        if hand.condemned:
            return
        for due_s, fault in self._dues(hand):
            if now_s > due_s:
                hand.condemned = fault
                self._kill(hand)
                return
        if not (hand.owes or hand.pinged) and now_s - hand.heard_s >= self._patience.ping_s:
            hand.ping(now_s)

    def _dues(self, hand: Hand) -> Iterator[tuple[float, str]]:
        """When it counts as hung, and what to say then."""
        patience, flight = self._patience, hand.running
        if flight is not None:
            yield hand.clock_s + flight.limit_s, f"it has been at one job for more than {flight.limit_s:.2f} s"
        elif hand.loading is not None:
            yield hand.clock_s + patience.load_s, f"it has been loading for more than {patience.load_s:.2f} s"
        elif hand.pinged:
            silent_s = patience.silent_s if hand.met else patience.load_s
            yield hand.clock_s + silent_s, f"it has given no sign of life for more than {silent_s:.2f} s"
        if hand.owes and hand.met and hand.remote.beats:
            yield hand.heard_s + patience.frozen_s, f"it has been silent for more than {patience.frozen_s:.2f} s"

    def _sleep_s(self) -> float:
        """Until a request's time is up, or the next look around."""
        with self._lock:
            due_s = min(self.traffic.next_deadline_s, self._look_s)
        return max(0.0, due_s - time.perf_counter()) + 0.001

    def _kill(self, hand: Hand) -> None:
        hand.remote.kill()
        # A process's pipe comes to its end by itself, after what it has still said; a thread's was closed here.
        if hand.remote.connection.closed:
            self._lose(hand)

    def _lose(self, hand: Hand) -> None:
        self._bell.forget(hand.remote.connection)
        quarantined = self.traffic.lost(hand, lambda: self._why(hand))
        self.crew.lost(hand, lambda: self._why(hand), counted=not quarantined)
        hand.remote.close(0.05)

    def _why(self, hand: Hand) -> str:
        return hand.condemned or hand.remote.ending()

    def abandon(self) -> None:
        """Nobody holds the pipeline any more: end it when the accepted requests have their answers."""
        with self._lock:
            self.open, self._abandoned = False, True
        self._bell.ring()

    def close(self, *, drain: bool, timeout_s: float | None = None) -> None:
        """Stop and leave nothing behind; may be called more than once, from any thread."""
        with self._lock:
            self.open = False
            draining = drain and not self._stopped and self._thread.is_alive()
        if draining and current_thread() is not self._thread:
            self._ledger.wait_empty(timeout_s)
        with self._lock:
            self._stopped = True
        if self._thread.ident is None:
            self._part()
            return
        self._bell.ring()
        if current_thread() is not self._thread:
            self._thread.join()

    def _part(self) -> None:
        """End all workers and give everything back."""
        with self.entered():
            self._stopped = True
            self._end_all(EngineClosed("the pipeline was closed", "Submit to an open one."))
            if self._closed:
                return
            self._closed = True
            while self._posts:
                self._posts.popleft()()
            hands = list(self.crew.hands)
        for starter in self._starters:
            starter.join()
        for hand in hands:
            # All see the end of their pipes at once; then each is waited for.
            hand.remote.connection.close()
        until_s = time.perf_counter() + _PARTING_S
        for hand in hands:
            hand.remote.close(max(0.0, until_s - time.perf_counter()))
        self._carrier.close()
        self._bell.close()
