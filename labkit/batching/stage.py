"""CPU preprocessing in its own threads, so that the next rows are made while the device computes."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from threading import Condition, Thread

from labkit.batching.request import Request, State

__all__ = ["PrepareStage"]


class PrepareStage:
    """`threads` threads that call `work(request)` in order of rank.

    `work` must not raise: what goes wrong for one request is answered through that request.
    """

    def __init__(self, work: Callable[[Request], None], threads: int, name: str) -> None:
        self._work = work
        self._waiting: list[tuple[float, int, Request]] = []
        self._wake = Condition()
        self._stopped = False
        self._threads = [Thread(target=self._loop, name=f"{name}-prepare-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def put(self, request: Request) -> None:
        """Let `request` be prepared; returns at once."""
        with self._wake:
            heappush(self._waiting, (request.rank_s, request.number, request))
            self._wake.notify()

    def stop(self) -> None:
        """Prepare nothing more."""
        with self._wake:
            self._stopped = True
            self._waiting.clear()
            self._wake.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait for the threads to end, `timeout_s` for each at most."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _loop(self) -> None:
        while (request := self._next()) is not None:
            self._work(request)

    def _next(self) -> Request | None:
        with self._wake:
            while True:
                if self._stopped:
                    return None
                # What was cancelled or has expired meanwhile is not prepared.
                while self._waiting and self._waiting[0][2].state is State.DONE:
                    heappop(self._waiting)
                if self._waiting:
                    return heappop(self._waiting)[2]
                self._wake.wait()
