"""The accepted requests that have no answer yet. Each leaves exactly once, with its row written first.

Several parties may want to end a request at the same moment: the worker with its output, the clock with a passed
deadline, the sender who cancels, `close`. Whoever takes it out of the ledger is the one that answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import InvalidStateError
from dataclasses import dataclass
from threading import Condition
from typing import Any

from labkit.batching.faults import Failure
from labkit.batching.request import Answer, Request
from labkit.errors import DeadlineExceeded
from labkit.records import Outcome, Recorder, RequestRecord

__all__ = ["Ledger", "Tally"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Tally:
    """How many requests ended in which way."""

    ok: int = 0
    failed: int = 0
    rejected: int = 0
    expired: int = 0
    cancelled: int = 0

    def count(self, outcome: Outcome) -> None:
        """Add one."""
        setattr(self, outcome, getattr(self, outcome) + 1)


class Ledger:
    """Live requests by number, the tally of ended ones, and their rows in `recorder`."""

    def __init__(self, recorder: Recorder) -> None:
        self._live: dict[int, Request] = {}
        self._recorder = recorder
        self._empty = Condition()
        self.tally = Tally()

    def __len__(self) -> int:
        return len(self._live)

    def open(self, requests: Sequence[Request]) -> None:
        """Enter accepted requests."""
        for request in requests:
            self._live[request.number] = request

    def live(self) -> list[Request]:
        """All requests that wait for an answer."""
        return list(self._live.values())

    def refuse(self, requests: Sequence[Request], error: Exception) -> None:
        """Write the rows of requests that were never accepted."""
        now_s = time.perf_counter()
        for _ in requests:
            self.tally.count("rejected")
        self._recorder.add_requests([request.record("rejected", now_s, str(error)) for request in requests])

    def withdraw(self, request: Request) -> bool:
        """End a request that its sender has cancelled; its future says so already."""
        return bool(self._claim([request], ["cancelled"], [""]))

    def answer(self, requests: Sequence[Request], outputs: Sequence[Any]) -> None:
        """Resolve each request with its output; a `Failure` or an exception among the outputs fails that one."""
        errors = [_error(output) for output in outputs]
        outcomes: list[Outcome] = [_outcome(error) for error in errors]
        claimed = self._claim(requests, outcomes, [str(error) if error else "" for error in errors])
        for request, output, error in zip(requests, outputs, errors, strict=True):
            if request.number in claimed:
                _deliver(request.future, output, error)

    def fail(self, requests: Sequence[Request], error: Exception) -> None:
        """Resolve all of `requests` with `error`."""
        self.answer(requests, [Failure(error)] * len(requests))

    def _claim(self, requests: Sequence[Request], outcomes: Sequence[Outcome], errors: Sequence[str]) -> set[int]:
        finished_s = time.perf_counter()
        rows: list[RequestRecord] = []
        for request, outcome, error in zip(requests, outcomes, errors, strict=True):
            # One atomic step decides who ends this request, whichever threads want to.
            if self._live.pop(request.number, None) is not None:
                rows.append(request.record(outcome, finished_s, error))
                self.tally.count(outcome)
        # Rows come before futures: whoever sees an answer finds its row.
        self._recorder.add_requests(rows)
        if not self._live:
            with self._empty:
                self._empty.notify_all()
        return {row.request for row in rows}

    def wait_empty(self, timeout_s: float | None) -> bool:
        """Wait until every request has its answer; say whether that came true within `timeout_s`."""
        with self._empty:
            return self._empty.wait_for(lambda: not self._live, timeout_s)


def _error(output: Any) -> Exception | None:
    if isinstance(output, Failure):
        return output.error
    return output if isinstance(output, Exception) else None


def _outcome(error: Exception | None) -> Outcome:
    if error is None:
        return "ok"
    return "expired" if isinstance(error, DeadlineExceeded) else "failed"


def _deliver(future: Answer, output: Any, error: Exception | None) -> None:
    future.forget()
    try:
        if error is None:
            future.set_result(output)
        else:
            future.set_exception(error)
    except InvalidStateError:
        # Its sender cancelled in the same instant; the future says so already.
        return
    except BaseException:
        # A callback of this future wants to end the thread. It must not take its neighbours' answers along.
        _log.exception("a callback of a request's future raised")
