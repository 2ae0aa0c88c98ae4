"""The threads that send: one open loop that follows a clock, one closed loop that follows the answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from threading import Semaphore, Thread
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from labkit.engine import Engine
from labkit.errors import QueueFull
from labkit.measure import pace

__all__ = ["ClosedSender", "OpenSender", "Payloads", "Sender", "drawn"]

BLOCK = 1_024


class Payloads(Protocol):
    """What a driver needs of a workload; `labkit.workloads.Workload` is one."""

    def payload(self, index: int) -> Any:
        """The payload of that index."""
        ...

    def order(self, count: int, seed: int) -> npt.NDArray[np.int64]:
        """Draw `count` indices at random."""
        ...


def drawn(workload: Payloads, seed: int) -> Iterator[Any]:
    """Payloads drawn at random without end; the same ones, in the same order, for the same seed."""
    for block in count():
        for index in workload.order(BLOCK, seed * 1_000_003 + block):
            yield workload.payload(int(index))


class Sender(Thread):
    """Sends requests and remembers what it meant to send, how late it was and which futures are still open.

    `sent_s` are the intended send times of all requests, refused ones included: the engine records them all.
    """

    def __init__(self, engine: Engine, payloads: Iterator[Any], stopped: Callable[[], bool]) -> None:
        super().__init__(name="labkit-sender", daemon=True)
        self.engine = engine
        self.payloads = payloads
        self.stopped = stopped
        self.sent_s: list[float] = []
        self.lags_s: list[float] = []
        self.error: BaseException | None = None
        self._open: deque[Future[Any]] = deque()

    def run(self) -> None:
        """Send until the schedule ends or `stopped` says so; what goes wrong is kept in `error`."""
        try:
            with pace.first_in_line():
                self.send_all()
        except BaseException as error:
            self.error = error

    def send_all(self) -> None:
        """The loop of the concrete sender."""
        raise NotImplementedError

    def send(self, payload: Any, intended_s: float) -> Future[Any] | None:
        """Send one request; None if the queue was full."""
        self.sent_s.append(intended_s)
        self.lags_s.append(time.perf_counter() - intended_s)
        try:
            future = self.engine.submit(payload, intended_s=intended_s)
        except QueueFull:
            return None
        self._open.append(future)
        return future

    def unresolved(self) -> list[Future[Any]]:
        """The futures without an answer; answered ones are forgotten here, so that their results free memory."""
        for _ in range(len(self._open)):
            future = self._open.popleft()
            if not future.done():
                self._open.append(future)
        return list(self._open)


class OpenSender(Sender):
    """Sends at given moments, whatever the engine does; a late send is made at once and none is left out."""

    def __init__(
        self, engine: Engine, payloads: Iterator[Any], due_s: Sequence[float], stopped: Callable[[], bool]
    ) -> None:
        super().__init__(engine, payloads, stopped)
        self._due_s = due_s

    def send_all(self) -> None:
        """Follow the schedule."""
        for due_s, payload in zip(self._due_s, self.payloads, strict=False):
            if not pace.until(due_s, self.stopped):
                return
            self.send(payload, due_s)


class ClosedSender(Sender):
    """Keeps `concurrency` requests in flight until `end_s`: each answer releases the next send."""

    def __init__(
        self, engine: Engine, payloads: Iterator[Any], concurrency: int, end_s: float, stopped: Callable[[], bool]
    ) -> None:
        super().__init__(engine, payloads, stopped)
        self._end_s = end_s
        self._places = Semaphore(concurrency)

    def send_all(self) -> None:
        """Follow the answers."""
        while time.perf_counter() < self._end_s and not self.stopped():
            if not self._places.acquire(timeout=pace.SLICE_S):
                continue
            future = self.send(next(self.payloads), time.perf_counter())
            if future is None:
                # Refused: the place is free again, but asking in a tight loop would only load the machine.
                time.sleep(0.001)
                self._places.release()
            else:
                future.add_done_callback(lambda _: self._places.release())
