"""The clock that ends requests whose time is up, also while every worker is busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from threading import Condition, Thread
from weakref import ReferenceType, ref

from labkit.batching.request import DONE, Request

__all__ = ["Deadlines"]

_SWEEP_AT = 1024
# Longer waits overflow the clock of some systems.
_LONGEST_WAIT_S = 3600.0


class Deadlines:
    """Calls `expire(request)` as soon as a request's deadline has passed, from a thread of its own.

    The thread starts with the first deadline that is watched. Requests are held weakly: the ledger keeps those that
    have no answer yet, and a long deadline must not keep an answer that its sender has long dropped.
    """

    def __init__(self, expire: Callable[[Request], None], name: str) -> None:
        self._expire = expire
        self._name = name
        self._due: list[tuple[float, int, ReferenceType[Request]]] = []
        self._wake = Condition()
        self._thread: Thread | None = None
        self._stopped = False
        self._sweep_at = _SWEEP_AT

    def watch(self, request: Request) -> None:
        """Keep an eye on `request`."""
        with self._wake:
            heappush(self._due, (request.deadline_s, request.number, ref(request)))
            if len(self._due) > self._sweep_at:
                self._sweep()
            if self._thread is None:
                self._thread = Thread(target=self._loop, name=f"{self._name}-deadlines", daemon=True)
                self._thread.start()
            if self._due and self._due[0][1] == request.number:
                self._wake.notify()

    def _sweep(self) -> None:
        # Long deadlines of requests that were answered quickly would pile up here.
        waiting = ((entry, entry[2]()) for entry in self._due)
        self._due = [entry for entry, request in waiting if request is not None and request.state is not DONE]
        heapify(self._due)
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._due))

    def stop(self) -> None:
        """End the thread; nothing expires any more."""
        with self._wake:
            self._stopped = True
            self._due.clear()
            self._wake.notify()

    def _loop(self) -> None:
        while (request := self._next()) is not None:
            if request.state is not DONE:
                self._expire(request)
            del request

    def _next(self) -> Request | None:
        with self._wake:
            while not self._stopped:
                left_s = self._due[0][0] - time.perf_counter() if self._due else _LONGEST_WAIT_S
                if left_s > 0:
                    self._wake.wait(min(left_s, _LONGEST_WAIT_S))
                elif (request := heappop(self._due)[2]()) is not None:
                    return request
        return None
