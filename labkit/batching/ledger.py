"""The accepted requests that have no answer yet. Each leaves exactly once, with its row written first.

Several parties may want to end a request at the same moment: the worker with its output, the clock with a passed
deadline, the sender who cancels, `close`. Whoever takes it out of the ledger is the one that answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import compress
from threading import Condition, get_ident
from typing import Any

from labkit.batching.faults import Failure
from labkit.batching.future import unwatched
from labkit.batching.request import Request, fields
from labkit.errors import DeadlineExceeded
from labkit.records import Outcome, Recorder, Tally

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
        with self._settled:
            self.tally.count("rejected", len(requests))
        self._recorder.add_requests(fields(requests, "rejected", time.perf_counter(), str(error)))

    def withdraw(self, request: Request) -> bool:
        """End a request that its sender has cancelled; its future says so already."""
        with self._claimed([request], "cancelled") as claimed:
            return any(claimed)

    def answer(self, requests: Sequence[Request], outputs: Sequence[Any]) -> None:
        """Resolve each request with its output; a `Failure` or an exception among the outputs fails that one."""
        # A model has few types of outputs, and faults are rare.
        if not any(issubclass(kind, (Failure, Exception)) for kind in set(map(type, outputs))):
            with self._claimed(requests, "ok") as claimed:
                _deliver(compress(zip(requests, outputs, strict=True), claimed))
            return
        for request, output in zip(requests, outputs, strict=True):
            if isinstance(output, Failure):
                self._fail(request, output.error)
            elif isinstance(output, Exception):
                self._fail(request, output)
            else:
                self.answer([request], [output])

    def fail(self, requests: Sequence[Request], error: Exception) -> None:
        """Resolve each of `requests` with a copy of `error`: one that several threads raise mixes their traces."""
        for request in requests:
            self._fail(request, _copy(error))

    def _fail(self, request: Request, error: Exception) -> None:
        outcome: Outcome = "expired" if isinstance(error, DeadlineExceeded) else "failed"
        with self._claimed([request], outcome, str(error)) as claimed:
            if any(claimed):
                request.fail(error)

    @contextmanager
    def _claimed(self, requests: Sequence[Request], outcome: Outcome, error: str = "") -> Iterator[list[bool]]:
        """Take `requests` out, and say of each whether nobody else had; inside, their futures are resolved."""
        finished_s, me, live = time.perf_counter(), get_ident(), self._live
        with self._settled:
            claimed = [live.pop(request.number, None) is not None for request in requests]
            self.tally.count(outcome, sum(claimed))
            self._answering.append(me)
        # Rows come before futures: whoever sees an answer finds its row.
        self._recorder.add_requests(fields(compress(requests, claimed), outcome, finished_s, error))
        try:
            yield claimed
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


def _deliver(answered: Iterable[tuple[Request, Any]]) -> None:
    with unwatched:
        watched = [(request, output) for request, output in answered if not request.ends_unwatched(output)]
    for request, output in watched:
        request.end(output)


def _copy(error: Exception) -> Exception:
    twin = copy(error)
    twin.__cause__ = error.__cause__
    return twin
