"""The accepted requests that have no answer yet. Each leaves exactly once, with its row written first.

Several parties may want to end a request at the same moment: the worker with its output, the clock with a passed
deadline, the sender who cancels, `close`. Whoever takes it out of the ledger is the one that answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from threading import Condition, get_ident
from typing import Any

from labkit.batching.faults import Failure
from labkit.batching.request import Request
from labkit.errors import DeadlineExceeded
from labkit.records import Outcome, Recorder, RequestRecord, Tally

__all__ = ["Ledger"]


class Ledger:
    """Live requests by number, the tally of ended ones, and their rows in `recorder`."""

    def __init__(self, recorder: Recorder) -> None:
        self._live: dict[int, Request] = {}
        # The threads that are answering requests now: those have left `_live`, but their futures may still be pending.
        self._answering: list[int] = []
        self._recorder = recorder
        self._settled = Condition()
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
        with self._settled:
            for _ in requests:
                self.tally.count("rejected")
        self._recorder.add_requests([request.record("rejected", now_s, str(error)) for request in requests])

    def withdraw(self, request: Request) -> bool:
        """End a request that its sender has cancelled; its future says so already."""
        with self._claimed([request], ["cancelled"], [""]) as claimed:
            return bool(claimed)

    def answer(self, requests: Sequence[Request], outputs: Sequence[Any]) -> None:
        """Resolve each request with its output; a `Failure` or an exception among the outputs fails that one."""
        errors = [_error(output) for output in outputs]
        outcomes: list[Outcome] = [_outcome(error) for error in errors]
        with self._claimed(requests, outcomes, [str(error) if error else "" for error in errors]) as claimed:
            for request, output, error in zip(requests, outputs, errors, strict=True):
                if request.number in claimed:
                    request.future.deliver(output, error)

    def fail(self, requests: Sequence[Request], error: Exception) -> None:
        """Resolve each of `requests` with a copy of `error`: one that several threads raise mixes their traces."""
        self.answer(requests, [Failure(_copy(error)) for _ in requests])

    @contextmanager
    def _claimed(
        self, requests: Sequence[Request], outcomes: Sequence[Outcome], errors: Sequence[str]
    ) -> Iterator[set[int]]:
        """Take `requests` out, as far as nobody else has; inside, their futures are resolved."""
        finished_s, me = time.perf_counter(), get_ident()
        rows: list[RequestRecord] = []
        with self._settled:
            for request, outcome, error in zip(requests, outcomes, errors, strict=True):
                if self._live.pop(request.number, None) is not None:
                    rows.append(request.record(outcome, finished_s, error))
                    self.tally.count(outcome)
            self._answering.append(me)
        # Rows come before futures: whoever sees an answer finds its row.
        self._recorder.add_requests(rows)
        try:
            yield {row.request for row in rows}
        finally:
            with self._settled:
                self._answering.remove(me)
                if not self._live and not self._answering:
                    self._settled.notify_all()

    def answering_here(self) -> bool:
        """Whether the calling thread is answering a request now: then a callback has called."""
        return get_ident() in self._answering

    def wait_empty(self, timeout_s: float | None) -> bool:
        """Wait until every request has its answer; say whether that came true within `timeout_s`."""
        with self._settled:
            return self._settled.wait_for(lambda: not self._live and not self._answering, timeout_s)


def _error(output: Any) -> Exception | None:
    if isinstance(output, Failure):
        return output.error
    return output if isinstance(output, Exception) else None


def _copy(error: Exception) -> Exception:
    twin = copy(error)
    twin.__cause__ = error.__cause__
    return twin


def _outcome(error: Exception | None) -> Outcome:
    if error is None:
        return "ok"
    return "expired" if isinstance(error, DeadlineExceeded) else "failed"
