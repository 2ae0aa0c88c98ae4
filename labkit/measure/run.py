"""One measured run: its rows, its window, and whether its numbers may be used."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.errors import RunVoid
from labkit.records import RequestRecord, StepRecord

__all__ = ["MAX_LAG_MS", "MAX_LAG_SHARE", "Run", "late"]

MAX_LAG_MS = 5.0
MAX_LAG_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """The rows of the requests that were meant to be sent in the window, and of the steps that started in it.

    `window_s` is the window's length (shorter than asked for if the run was stopped), `start_s` its start on
    `time.perf_counter`. `offered` counts the requests meant to be sent in it. Of these, `lost` are those whose
    future was not resolved when the drain ended or that have no row: they count as misses. `carried` are requests of
    the warm-up that were answered inside the window. `void` says why the numbers must not be used; empty: they may.
    """

    requests: tuple[RequestRecord, ...]
    steps: tuple[StepRecord, ...]
    window_s: float
    offered: int
    lag_p99_ms: float
    void: str
    start_s: float = 0.0
    lost: int = 0
    carried: int = 0
    drained_s: float = 0.0
    stopped: bool = False
    seed: int = 0
    slo_ms: float | None = None

    def valid_or_raise(self) -> Run:
        """This run, or `RunVoid` with the reason if its numbers must not be used."""
        if self.void:
            raise RunVoid(self.void, "Run it again with fewer other programs, a lower rate or a shorter step.")
        return self


def late(lag_p99_ms: float, p50_ms: float) -> str:
    """Why a generator with this lag voids its run; empty if it kept its schedule.

    The rule: the run is void if the p99 of the lag (actual - intended send time) is above 5 ms or above 5 % of the
    median latency of the answered requests (`nan`: none was answered, and only the first limit applies).

    >>> late(lag_p99_ms=0.4, p50_ms=40.0)
    ''
    >>> late(lag_p99_ms=4.0, p50_ms=40.0)
    'the generator was late: its p99 lag was 4.00 ms, the limit is 2.00 ms (5 % of the p50 of 40.0 ms)'
    """
    share_ms = math.inf if math.isnan(p50_ms) else MAX_LAG_SHARE * p50_ms
    limit_ms = min(MAX_LAG_MS, share_ms)
    if lag_p99_ms <= limit_ms:
        return ""
    why = f" ({MAX_LAG_SHARE:.0%} of the p50 of {p50_ms:.1f} ms)".replace("%", " %") if share_ms < MAX_LAG_MS else ""
    return f"the generator was late: its p99 lag was {lag_p99_ms:.2f} ms, the limit is {limit_ms:.2f} ms{why}"
