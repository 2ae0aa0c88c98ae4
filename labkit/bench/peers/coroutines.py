"""Load for systems that are called by `await`, in the event loop where they live, as people use them.

The clock is watched by a thread (an event loop's own timers are only good to a millisecond, which would be counted as
the system's latency); each request is a task of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from .load import Answered, drive

__all__ = ["burst", "drive_calls"]

Call = Callable[[int], Awaitable[Any]]


async def drive_calls(call: Call, at_s: Sequence[float]) -> dict[str, Any]:
    """`load.drive` with `await call(i)` for request i."""
    loop, tasks = asyncio.get_running_loop(), set()

    async def one(number: int, answered: Answered) -> None:
        try:
            await call(number)
        except Exception:
            answered(number, False)
        else:
            answered(number, True)

    def spawn(number: int, answered: Answered) -> None:
        # A loop keeps no strong reference to its tasks.
        task = loop.create_task(one(number, answered))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def send(number: int, due_s: float, answered: Answered) -> None:
        loop.call_soon_threadsafe(spawn, number, answered)

    report = await asyncio.to_thread(drive, at_s, send)
    for task in tasks:
        task.cancel()
    return report


async def burst(call: Call, requests: int, in_flight: int) -> dict[str, Any]:
    """Submit `in_flight` requests at once, await them all, and so on; after one wave that is not counted.

    Returns seconds of CPU time (all threads) and of wall time for `requests`.
    """
    await asyncio.gather(*(call(number) for number in range(in_flight)))
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    for _ in range(requests // in_flight):
        await asyncio.gather(*(call(number) for number in range(in_flight)))
    return {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - wall_s}
