"""labkit's own batcher, under the same load and the same protocol as its peers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from labkit.batching import Batcher, Goodput
from labkit.errors import QueueFull

from .coroutines import burst
from .load import Answered, drive
from .protocol import serve
from .service import CAP, Service

__all__ = ["main"]


def main() -> None:
    """Answer the bench's requests."""
    serve(
        {
            "open": _open_loop,
            "open with a goal": lambda at_s, slo_ms: _open_loop(at_s, policy=Goodput(slo_ms)),
            "open with a limit": lambda at_s, slo_ms: _open_loop(at_s, policy=Goodput(slo_ms), timeout_s=slo_ms / 1e3),
            "burst": _no_op,
            "burst by await": _no_op_awaited,
        }
    )


def _open_loop(at_s: Sequence[float], **settings: Any) -> dict[str, Any]:
    """The synthetic service under an open load, greedy if `settings` do not say otherwise."""
    service = Service()
    with Batcher(service, max_rows=CAP, **settings) as batcher:

        def send(number: int, due_s: float, answered: Answered) -> None:
            def told(future: Future[Any]) -> None:
                answered(number, not future.cancelled() and future.exception() is None)

            try:
                batcher.submit(number, intended_s=due_s).add_done_callback(told)
            except QueueFull:
                answered(number, False)

        return {**drive(at_s, send), "batch_rows": service.batch_rows}


def _no_op(requests: int, in_flight: int) -> dict[str, Any]:
    """Its own cost, by `submit` and `future.result()`."""
    with Batcher(list, max_rows=CAP, max_queue=in_flight) as batcher:
        _wave(batcher, in_flight)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        for _ in range(requests // in_flight):
            _wave(batcher, in_flight)
        return {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - wall_s}


def _no_op_awaited(requests: int, in_flight: int) -> dict[str, Any]:
    """Its own cost, by `await` in an event loop, as its peers are called."""
    with Batcher(list, max_rows=CAP, max_queue=in_flight) as batcher:
        return asyncio.run(burst(batcher, requests, in_flight))


def _wave(batcher: Batcher, in_flight: int) -> None:
    for future in [batcher.submit(number) for number in range(in_flight)]:
        future.result()
