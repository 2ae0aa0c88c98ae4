"""CPU preprocessing in its own threads, so that the next rows are made while the device computes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from threading import Condition, Thread

from labkit.batching.request import DONE, Request

__all__ = ["PrepareStage"]

_log = logging.getLogger(__name__)

_SWEEP_AT = 1024


class PrepareStage:
    """`threads` threads that call `work(request)` in order of rank.

    What goes wrong for one request is answered through that request, by `work`.
    """

    def __init__(self, work: Callable[[Request], None], threads: int, name: str) -> None:
        self._work = work
        self._waiting: list[tuple[float, int, Request]] = []
        self._wake = Condition()
        self._stopped = False
        self._sweep_at = _SWEEP_AT
        self._threads = [Thread(target=self._loop, name=f"{name}-prepare-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def put(self, request: Request) -> None:
        """Let `request` be prepared; returns at once."""
        with self._wake:
            if self._stopped:
                return
            heappush(self._waiting, (request.rank_s, request.number, request))
            if len(self._waiting) > self._sweep_at:
                self._sweep()
            self._wake.notify()

    def _sweep(self) -> None:
        # Behind one slow item, those that were cancelled would pile up here.
        self._waiting = [entry for entry in self._waiting if entry[2].state is not DONE]
        heapify(self._waiting)
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._waiting))

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
            try:
                self._work(request)
            except BaseException:
                # The request has its answer. SystemExit in the user's code must not end the preparing of all others.
                _log.exception("preprocessing wanted to end its thread")
            # While it waits for the next, this thread keeps no answer alive.
            del request

    def _next(self) -> Request | None:
        with self._wake:
            while True:
                if self._stopped:
                    return None
                # What was cancelled or has expired meanwhile is not prepared.
                while self._waiting and self._waiting[0][2].state is DONE:
                    heappop(self._waiting)
                if self._waiting:
                    return heappop(self._waiting)[2]
                self._wake.wait()
