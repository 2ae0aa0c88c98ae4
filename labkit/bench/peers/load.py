"""The open loop, the same for every system: send at given moments, count from those moments.

The rule is that of `labkit.measure`: a request goes out at its intended time whatever the system does, a late one is
sent at once, none is left out, and latency counts from the intended time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from threading import Event, Lock
from typing import Any

__all__ = ["Answered", "Send", "drive"]

LEAD_S = 0.1
DRAIN_S = 20.0
EARLY_S = 0.0002

# What a system tells of request number i: whether it was answered, or went wrong.
Answered = Callable[[int, bool], None]
# How to send request number i, which was meant for a moment of `time.perf_counter`.
Send = Callable[[int, float, Answered], None]


def drive(at_s: Sequence[float], send: Send) -> dict[str, Any]:
    """Send request i at `at_s[i]` seconds from now on and wait for the answers.

    Returns latencies (None: no answer, or an error) and lags (actual - intended send time) in milliseconds.
    """
    start_s = time.perf_counter() + LEAD_S
    log = _Log([start_s + at for at in at_s])
    for number, due_s in enumerate(log.due_s):
        _until(due_s)
        log.lags_ms.append((time.perf_counter() - due_s) * 1e3)
        send(number, due_s, log.answered)
    log.complete.wait(DRAIN_S)
    return {"latencies_ms": [None if math.isinf(ms) else ms for ms in log.latencies_ms], "lags_ms": log.lags_ms}


class _Log:
    """When each request was due, and what became of it."""

    def __init__(self, due_s: list[float]) -> None:
        self.due_s = due_s
        self.lags_ms: list[float] = []
        self.latencies_ms = [math.inf] * len(due_s)
        self.complete = Event()
        self._open = len(due_s)
        self._lock = Lock()

    def answered(self, number: int, ok: bool) -> None:
        now_s = time.perf_counter()
        if ok:
            self.latencies_ms[number] = (now_s - self.due_s[number]) * 1e3
        with self._lock:
            self._open -= 1
            if not self._open:
                self.complete.set()


def _until(due_s: float) -> None:
    # Sleeping threads wake up a little late: the last moment is spent giving way instead.
    while (left_s := due_s - time.perf_counter()) > 0:
        time.sleep(left_s - EARLY_S if left_s > EARLY_S else 0)
