"""One worker as the controller knows it, and the seat that it fills."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from labkit.sharding.job import Job, Key, Load, Ping, sender
from labkit.sharding.recovery import Losses
from labkit.sharding.remote import Remote
from labkit.sharding.request import Microbatch

__all__ = ["Flight", "Hand", "Seat", "Store"]


class Store(Protocol):
    """Where values lie between stages; the controller's side of a `Ring` or a `Cabinet`."""

    @property
    def in_use(self) -> int:
        """Slots that hold something."""
        ...

    def reserve(self, size_bytes: int) -> int:
        """Give a free slot of at least that size."""
        ...

    def put(self, value: Any) -> tuple[int, int]:
        """Write a value into a free slot; return the slot and the bytes."""
        ...

    def take(self, slot: int) -> Any:
        """Read a value, the caller's to keep."""
        ...

    def free(self, slot: int) -> None:
        """Give a slot back."""
        ...

    def show(self, slot: int, remote: Remote) -> None:
        """Let a worker see a slot."""
        ...

    def close(self) -> None:
        """Destroy everything."""
        ...


@dataclass(slots=True)
class Flight:
    """A job that a worker has been given and not yet answered."""

    key: Key
    microbatch: Microbatch
    first: int
    last: int
    target: int
    kind: Hashable
    limit_s: float


class Hand:
    """A worker: what it has been told, what it holds, and when it was last heard of."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.seat: Seat | None = None
        self.jobs: deque[Flight] = deque()
        self.layers: frozenset[int] = frozenset()
        self.loading: frozenset[int] | None = None
        # Jobs that were in its pipe before it was told to load.
        self.ahead = 0
        self.warm: set[Hashable] = set()
        self.condemned = ""
        # When the oldest thing that it owes us was begun: its head job, a load, a sign of life.
        self.clock_s = self.heard_s = time.perf_counter()
        self.pinged = self.met = False
        self._known: set[int] = set()
        self._dropped: list[int] = []
        self._send = sender(remote.connection)

    def tell(self, message: Any) -> None:
        """Send a message. A worker that is gone hears nothing; the end of its pipe will say so."""
        with contextlib.suppress(OSError):
            self._send(message)

    def give(self, flight: Flight, job: Job, store: Store) -> None:
        """Give it a job, after showing it the slots that it does not know."""
        if not self.jobs:
            self.clock_s = time.perf_counter()
        self.jobs.append(flight)
        self.show(store, job.source, job.target)
        job, self._dropped = job._replace(dropped=tuple(self._dropped)), []
        self.tell(job)

    def show(self, store: Store, *slots: int) -> None:
        """Let it see slots."""
        for slot in slots:
            if slot not in self._known:
                self._known.add(slot)
                with contextlib.suppress(OSError):
                    store.show(slot, self.remote)

    def forget_slot(self, slot: int) -> None:
        """Tell it with its next job that a slot no longer exists."""
        if slot in self._known:
            self._known.remove(slot)
            self._dropped.append(slot)

    def load(self, layers: frozenset[int], message: Load) -> None:
        """Tell it to hold exactly `layers`. What it is to unload is not given to it any more from here on."""
        if not self.jobs:
            self.clock_s = time.perf_counter()
        self.ahead, self.loading = len(self.jobs), layers
        self.layers &= layers
        self.tell(message)

    def land(self) -> Flight:
        """Take its oldest job: it has answered."""
        self.clock_s, self.ahead = time.perf_counter(), max(0, self.ahead - 1)
        return self.jobs.popleft()

    @property
    def running(self) -> Flight | None:
        """The job that it is at, if it is not loading."""
        return self.jobs[0] if self.jobs and (self.loading is None or self.ahead) else None

    @property
    def owes(self) -> bool:
        """Whether it has anything to do."""
        return bool(self.jobs) or self.loading is not None

    def ping(self, now_s: float) -> None:
        """Ask for a sign of life."""
        self.pinged, self.clock_s = True, now_s
        self.tell(Ping())

    def holds(self, layers: range) -> bool:
        """Whether it can run `layers` now."""
        return not self.condemned and self.layers.issuperset(layers)


@dataclass(slots=True, eq=False)
class Seat:
    """A place for a worker: a device, which stays when the worker is lost."""

    number: int
    device: str
    slowdown: float = 1.0
    hand: Hand | None = None
    awaited: bool = False
    losses: Losses = field(default_factory=Losses)

    def holds(self, layers: range) -> bool:
        """Whether its worker can run `layers` now."""
        return self.hand is not None and self.hand.holds(layers)

    @property
    def manned(self) -> bool:
        """Whether it has a worker, or one is on the way."""
        return self.hand is not None or self.awaited
