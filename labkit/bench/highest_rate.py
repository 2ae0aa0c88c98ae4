"""Case (b): the highest rate at which p99 <= 100 ms, searched for each system in turn, step by step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from labkit.bench.fleet import Fleet
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import Spread
from labkit.bench.sample import Sample, Window, measured, simulated
from labkit.bench.system import LABKIT, System
from labkit.bench.turns import Turns
from labkit.measure import MaxRate, max_rate

__all__ = ["RatePlan", "run"]

SLO_MS = 100.0
# 32 rows in 52 ms: no system can answer more.
SATURATION_PER_S = 615.0
SIMULATIONS = 5
LONG_S = 200.0
SHARE_OF_OPTIMUM = 0.95
CASE = f"highest rate with p99 <= {SLO_MS:.0f} ms"


@dataclass(frozen=True, slots=True)
class RatePlan:
    """Where the search begins and how fine it gets; `confirm` runs in a row must hold at the rate that it finds."""

    lowest_per_s: float
    growth: float
    tolerance: float
    confirm: int
    window_s: float
    warmup_s: float


def run(fleet: Fleet, plan: RatePlan) -> Part:
    """Search for all systems at once, one step of each in turn.

    Raises `MeasureError` if labkit itself could not be measured.
    """
    turns = Turns()

    def search(system: System) -> Spread | None:
        def sample(window: Window) -> Sample:
            with turns.turn():
                fleet.say(f"{CASE}: {system} at {window.rate_per_s:.0f}/s")
                return measured(fleet, system, window)

        return fleet.attempt(system, lambda: _bracket(_search(sample, plan, first_seed=0)))

    # An HTTP peer's every step starts a server; the others' workers wait, asleep.
    with ThreadPoolExecutor(len(fleet.systems)) as threads:
        found = dict(zip(fleet.systems, threads.map(search, fleet.systems), strict=True))
    optimum = _optimum(plan)
    rows = [_row(system, rate, fleet) for system, rate in found.items()]
    return Part((*rows, *_modelled(optimum, plan)), _checks(found, optimum), _notes(plan))


def _optimum(plan: RatePlan) -> Spread:
    """What the simulation holds on the arrivals that the systems met, with the range over other arrivals."""
    found = [_search(simulated, plan, first_seed=1000 * number).rate_per_s for number in range(SIMULATIONS)]
    return Spread(found[0], min(found), max(found))


def _search(sample: Callable[[Window], Sample], plan: RatePlan, first_seed: int) -> MaxRate[Sample]:
    seeds = itertools.count(first_seed)

    def better_of_two(rate_per_s: float) -> Sample:
        first = sample(Window.enough(rate_per_s, plan.window_s, plan.warmup_s, next(seeds)))
        if first.meets(SLO_MS):
            return first
        second = sample(Window.enough(rate_per_s, plan.window_s, plan.warmup_s, next(seeds)))
        return min(first, second, key=lambda tried: tried.percentile_ms(99))

    return max_rate(
        better_of_two,
        SLO_MS,
        plan.lowest_per_s,
        SATURATION_PER_S,
        growth=plan.growth,
        tolerance=plan.tolerance,
        confirm=plan.confirm,
    )


def _bracket(found: MaxRate[Sample]) -> Spread:
    """The rate that held, up to the lowest that was tried above it and did not."""
    failed = [point.rate_per_s for point in found.points if not point.meets and point.rate_per_s >= found.rate_per_s]
    return Spread(found.rate_per_s, found.rate_per_s, min(failed, default=math.nan))


def _row(system: System, rate: Spread | None, fleet: Fleet) -> BenchRow:
    if rate is None:
        return BenchRow.missing(CASE, str(system), fleet.failures.get(system, ""))
    return BenchRow(CASE, str(system), "rate that held .. failed", rate.value, rate.low, rate.high, "1/s")


def _modelled(optimum: Spread, plan: RatePlan) -> tuple[BenchRow, BenchRow]:
    long = RatePlan(plan.lowest_per_s, plan.growth, 0.005, 1, LONG_S, plan.warmup_s)
    limit = _search(simulated, long, first_seed=0).rate_per_s
    return (
        BenchRow(
            CASE, "simulation", "same arrivals, same rule", optimum.value, optimum.low, optimum.high, "1/s", "modelled"
        ),
        BenchRow(CASE, "simulation", f"windows of {LONG_S:.0f} s", limit, unit="1/s", number_class="modelled"),
    )


def _checks(found: dict[System, Spread | None], optimum: Spread) -> tuple[BenchCheck, ...]:
    ours = found[LABKIT] or Spread()
    peers = [rate for system, rate in found.items() if system != LABKIT]
    known = [rate.value for rate in peers if rate is not None]
    best = max(known) if known and len(known) == len(peers) else math.nan
    share, above = _divided(ours.value, optimum.value), _divided(ours.value, best)
    return (
        BenchCheck.within(f"{CASE}: labkit / simulated optimum", share, low=SHARE_OF_OPTIMUM),
        BenchCheck.above(f"{CASE}: labkit / best peer", above, 1.0),
    )


def _divided(ours: float, theirs: float) -> float:
    """A quotient of rates; a peer that holds none at all is beaten infinitely."""
    return ours / theirs if theirs else (math.inf if ours else math.nan)


def _notes(plan: RatePlan) -> tuple[str, ...]:
    return (
        f"A rate holds if a run of {plan.window_s:g} s or more proves p99 <= {SLO_MS:.0f} ms at 99 % confidence (early "
        "stopping, MLPerf's rule); a run that does not is followed by one more, because a single stall of the machine "
        f"would end the search; {plan.confirm} more confirm the result. 0: not even {plan.lowest_per_s:.0f}/s held.",
        "The simulation is held to the same rule on the same arrivals. Its low..high comes from other arrivals: so "
        "much, and no more, can one search tell. In long windows the rule is less strict and the rate a bit higher.",
    )
