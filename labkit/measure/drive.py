"""Load generators: drive any engine, in an open or a closed loop, and return what happened as a `Run`.

Open loop: requests go out at the moments that an arrival process says, whether or not the engine keeps up, and latency
counts from those moments. This is how users behave, and it cannot hide a stall. Closed loop: a fixed number of
requests is in flight, each answer releases the next; for saturation only, for it sends less when the engine is slow.

The rows of a run come from `engine.records` alone. A generator that could not keep its schedule, a future that never
resolved or a request without a row voids the run; see `run.late` for the rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import TypeVar

import numpy as np

from labkit.engine import Engine
from labkit.errors import require
from labkit.measure.conduct import Plan, conduct
from labkit.measure.run import Run
from labkit.measure.sender import ClosedSender, OpenSender, Payloads, drawn
from labkit.workloads.arrivals import Arrivals

__all__ = ["drive_closed", "drive_open", "repeat"]

Result = TypeVar("Result")

WARMUP_S = 2.0
DRAIN_S = 30.0
WARMUP_SEED = 1_000_003
# Time for the sending thread to start.
LEAD_S = 0.05


def drive_open(
    engine: Engine,
    arrivals: Arrivals,
    workload: Payloads,
    *,
    duration_s: float,
    seed: int = 0,
    slo_ms: float | None = None,
    warmup_s: float = WARMUP_S,
    drain_s: float = DRAIN_S,
    stop: Event | None = None,
) -> Run:
    """Send payloads drawn by `seed` at `arrivals.times(duration_s, seed)` and return the run.

    The same process first runs for `warmup_s` with another seed; those requests are not counted. After the window the
    generator waits up to `drain_s` for the answers, which count. The run is void if the p99 of the lag is above 5 ms or
    above 5 % of the median latency, if a future stays unresolved, or if a request has no row. Setting `stop` ends the
    run within about half a second, with a shorter window.

    Raises what `engine.submit` raises, except `QueueFull`, which the engine records as a rejection.
    """
    plan = _plan(duration_s, warmup_s, drain_s, seed, slo_ms, scheduled=True)
    warmup = arrivals.times(warmup_s, seed + WARMUP_SEED) - warmup_s if warmup_s else np.empty(0)
    offsets_s = np.concatenate([warmup, arrivals.times(duration_s, seed)])
    due_s = (plan.start_s + offsets_s).tolist()
    return conduct(engine, plan, stop, lambda halt: OpenSender(engine, drawn(workload, seed), due_s, halt))


def drive_closed(
    engine: Engine,
    workload: Payloads,
    *,
    concurrency: int,
    duration_s: float,
    seed: int = 0,
    slo_ms: float | None = None,
    warmup_s: float = WARMUP_S,
    drain_s: float = DRAIN_S,
    stop: Event | None = None,
) -> Run:
    """Keep `concurrency` requests in flight for `duration_s` after `warmup_s` and return the run.

    Only for saturation curves: take `achieved_per_s` from it, never a latency that you promise to users. There is no
    schedule, so the lag is 0; `seed` draws the payloads. A rule of thumb for saturation (Triton's manual) is
    `2 * cap * workers` in flight.
    """
    plan = _plan(duration_s, warmup_s, drain_s, seed, slo_ms, scheduled=False)
    require(concurrency >= 1, f"concurrency is {concurrency}; it must be at least 1", "Give 1 or more.")
    payloads = drawn(workload, seed)
    return conduct(engine, plan, stop, lambda halt: ClosedSender(engine, payloads, concurrency, plan.end_s, halt))


def repeat(run: Callable[[int], Result], *, seeds: Sequence[int] = (1, 2, 3)) -> tuple[Result, ...]:
    """Call `run` with each seed, three times or more; show the median and the range of what comes back.

    >>> repeat(lambda seed: seed * 10)
    (10, 20, 30)
    """
    require(
        len(set(seeds)) == len(seeds) >= 3,
        f"the seeds are {tuple(seeds)}; a repeated measurement needs at least 3, all different",
        "Give for example (1, 2, 3).",
    )
    return tuple(run(seed) for seed in seeds)


def _plan(
    duration_s: float, warmup_s: float, drain_s: float, seed: int, slo_ms: float | None, *, scheduled: bool
) -> Plan:
    """Check the times, and place the window on the clock: it begins after the warm-up."""
    require(duration_s > 0, f"duration_s is {duration_s}; it must be positive", "Give the window's length.")
    for name, value in (("warmup_s", warmup_s), ("drain_s", drain_s)):
        require(value >= 0, f"{name} is {value}; it must be 0 or more", "Give 0 to leave it out.")
    return Plan(time.perf_counter() + LEAD_S + warmup_s, duration_s, drain_s, seed, slo_ms, scheduled)
