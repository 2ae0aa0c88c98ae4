"""One hop from process to process and back, timed: half of it is one hop, with copying in and copying out.

The value is the sender's own before, and the receiver's own after. Both ways are alike, so no clocks are compared.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .protocol import serve

__all__ = ["Hop", "child", "one_way_ms", "serve_hop"]

WARMUP = 5


class Hop(Protocol):
    """A transport between this process and an echo."""

    def value(self, size_bytes: int, times: int) -> Any:
        """Something of that size, as the transport likes it best; it will be sent so many times."""
        ...

    def bounce(self, value: Any) -> Any:
        """Send a value and return what comes back, ours to keep."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def serve_hop(connect: Callable[[], Hop]) -> None:
    """Answer "bounce" with the median milliseconds of one hop; "close" ends the transport."""
    hops: list[Hop] = []

    def bounce(size_bytes: int, times: int) -> Mapping[str, Any]:
        if not hops:
            hops.append(connect())
        return {"ms": one_way_ms(hops[0], size_bytes, times)}

    def close() -> Mapping[str, Any]:
        while hops:
            hops.pop().close()
        return {}

    serve({"bounce": bounce, "close": close})


def one_way_ms(hop: Hop, size_bytes: int, times: int) -> float:
    """The median of half a round trip, in milliseconds."""
    value, took_s = hop.value(size_bytes, WARMUP + times), []
    for _ in range(WARMUP + times):
        begun_s = time.perf_counter()
        back = hop.bounce(value)
        took_s.append(time.perf_counter() - begun_s)
    if back.nbytes != size_bytes:
        raise ValueError(f"{size_bytes} bytes were sent, {back.nbytes} came back")
    return statistics.median(took_s[WARMUP:]) / 2 * 1000


def child(target: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    """Start an echo in a process of its own, which ends with this one."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    process.start()
    return process
