"""The accepted requests that have no answer yet. Each leaves exactly once, with its row written first."""

from __future__ import annotations

import logging
import time
from concurrent.futures import InvalidStateError
from dataclasses import dataclass
from threading import Condition
from typing import Any

from labkit.errors import DeadlineExceeded
from labkit.records import Outcome, Recorder, Tally
from labkit.sharding.request import Request

__all__ = ["Ending", "Ledger"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """A request that has left the ledger, and what its future still has to be told."""

    request: Request
    output: Any
    error: Exception | None

    def deliver(self) -> None:
        """Resolve the future; call this without holding a lock, for its callbacks may do anything."""
        try:
            if self.error is None:
                self.request.future.set_result(self.output)
            else:
                self.request.future.set_exception(self.error)
        except InvalidStateError:
            # Its sender cancelled in the same instant; the future says so already.
            return
        except BaseException:
            _log.exception("a callback of a request's future raised")


class Ledger:
    """Live requests by number, the tally of ended ones, and their rows in `recorder`. Its owner locks it."""

    def __init__(self, recorder: Recorder) -> None:
        self.tally = Tally()
        self._live: dict[int, Request] = {}
        self._recorder = recorder
        self._empty = Condition()
        self._endings: list[Ending] = []

    def __len__(self) -> int:
        return len(self._live)

    def open(self, request: Request) -> None:
        """Enter an accepted request."""
        self._live[request.number] = request

    def live(self) -> list[Request]:
        """All requests that wait for an answer."""
        return list(self._live.values())

    def refuse(self, request: Request, error: Exception) -> None:
        """Write the row of a request that was never accepted."""
        self.tally.count("rejected")
        self._recorder.add_requests([request.record("rejected", time.perf_counter(), str(error))])

    def withdraw(self, request: Request) -> bool:
        """End a request that its sender has cancelled; its future says so already."""
        return self._close(request, "cancelled", "")

    def answer(self, request: Request, output: Any) -> bool:
        """End a request with its output; False if it had ended before."""
        ended = self._close(request, "ok", "")
        if ended:
            self._endings.append(Ending(request, output, None))
        return ended

    def fail(self, request: Request, error: Exception) -> bool:
        """End a request with an error; False if it had ended before."""
        ended = self._close(request, "expired" if isinstance(error, DeadlineExceeded) else "failed", str(error))
        if ended:
            self._endings.append(Ending(request, None, error))
        return ended

    def take_endings(self) -> list[Ending]:
        """What is to be delivered, once the lock is free."""
        endings, self._endings = self._endings, []
        return endings

    def wait_empty(self, timeout_s: float | None) -> bool:
        """Wait until every request has its answer; say whether that came true within `timeout_s`."""
        with self._empty:
            return self._empty.wait_for(lambda: not self._live, timeout_s)

    def _close(self, request: Request, outcome: Outcome, error: str) -> bool:
        if self._live.pop(request.number, None) is None:
            return False
        self.tally.count(outcome)
        self._recorder.add_requests([request.record(outcome, time.perf_counter(), error)])
        request.free()
        if not self._live:
            with self._empty:
                self._empty.notify_all()
        return True
