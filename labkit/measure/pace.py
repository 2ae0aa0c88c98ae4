"""Waiting for a moment, to a tenth of a millisecond, without taking the interpreter away from the engine."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["first_in_line", "towards", "until"]

# A sleeping thread wakes up to 0.2 ms late (Linux adds 50 us on purpose). So sleep until that long before the
# moment, then give way again and again: `sleep(0)` releases the interpreter each time, as a plain spin would not.
EARLY_S = 0.0002
SLICE_S = 0.02
NICE = -10


def towards(at_s: float) -> None:
    """Come closer to the moment `at_s`, by at most 20 ms; the caller looks at the clock and at its stop flag."""
    left_s = at_s - time.perf_counter()
    time.sleep(min(left_s - EARLY_S, SLICE_S) if left_s > EARLY_S else 0)


def until(at_s: float, stopped: Callable[[], bool]) -> bool:
    """Wait until `at_s` on `time.perf_counter`; return False at once when `stopped` says so."""
    while time.perf_counter() < at_s and not stopped():
        towards(at_s)
    return not stopped()


@contextmanager
def first_in_line() -> Iterator[None]:
    """Ask the system to wake this thread before others while the block runs, where it is allowed.

    A sender needs the processor a few microseconds at a time, but at once: on a busy machine this turns a lag of
    milliseconds into one of microseconds. Only Linux has priorities per thread, and only a privileged process (often
    in a container) may raise one; elsewhere nothing happens, and the lag that is recorded tells the rest.
    """
    if sys.platform != "linux":
        yield
        return
    thread = threading.get_native_id()
    usual = os.getpriority(os.PRIO_PROCESS, thread)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, min(usual, NICE))
    try:
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, usual)
