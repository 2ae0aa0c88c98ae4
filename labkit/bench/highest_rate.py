"""Case (b): the highest rate at which p99 <= 100 ms, searched for each system in turn, step by step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from labkit.bench.fleet import Fleet
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import Spread
from labkit.bench.sample import Sample, Window, measured, simulated
from labkit.bench.system import BENTOML, LABKIT
from labkit.bench.turns import Turns
from labkit.bench.way import Way
from labkit.measure import MaxRate, max_rate

__all__ = ["RatePlan", "run"]

SLO_MS = 100
# 32 rows in 52 ms: no system can answer more.
SATURATION_PER_S = 615.0
SIMULATIONS = 5
LONG_S = 200.0
SHARE_OF_OPTIMUM = 0.95
CASE = f"highest rate with p99 <= {SLO_MS} ms"


@dataclass(frozen=True, slots=True)
class RatePlan:
    """Where the search begins and how fine it gets; `confirm` runs in a row must hold at the rate that it finds.

    `dropping`: whether systems that can give late requests up are also searched with that.
    """

    lowest_per_s: float
    growth: float
    tolerance: float
    confirm: int
    window_s: float
    warmup_s: float
    dropping: bool = True


@dataclass(frozen=True, slots=True)
class _Contest:
    """The ways that are compared with one another, labkit's first: `rule` says what all of them do."""

    rule: str
    ours: Way
    peers: tuple[Way, ...]


GREEDY = Way("labkit", LABKIT, "open")


def _contests(fleet: Fleet, dropping: bool) -> tuple[_Contest, ...]:
    peers = tuple(Way(str(system), system, "open") for system in fleet.systems if system != LABKIT)
    answering = _Contest("all answered", Way("labkit, Goodput", LABKIT, "open with a goal", SLO_MS), peers)
    if not dropping or BENTOML not in fleet.systems:
        return (answering,)
    theirs = Way(f"{BENTOML}, may drop", BENTOML, "open with a limit", SLO_MS)
    return (
        answering,
        _Contest("may drop", Way("labkit, Goodput, may drop", LABKIT, "open with a limit", SLO_MS), (theirs,)),
    )


def run(fleet: Fleet, plan: RatePlan) -> Part:
    """Search for all ways at once, one step of each in turn.

    Raises `MeasureError` if labkit itself could not be measured.
    """
    contests, turns = _contests(fleet, plan.dropping), Turns()
    ways = [GREEDY, *(way for contest in contests for way in (contest.ours, *contest.peers))]

    def search(way: Way) -> Spread | None:
        def sample(window: Window) -> Sample:
            with turns.turn():
                fleet.say(f"{CASE}: {way.name} at {window.rate_per_s:.0f}/s")
                return measured(fleet, way, window)

        return fleet.attempt(way.system, lambda: _bracket(_search(sample, plan, first_seed=0)))

    # An HTTP peer's every step starts a server; the others' workers wait, asleep.
    with ThreadPoolExecutor(len(ways)) as threads:
        found = dict(zip(ways, threads.map(search, ways), strict=True))
    optimum = _optimum(plan)
    rows = [_row(way, rate, fleet) for way, rate in found.items()]
    return Part((*rows, *_modelled(optimum, plan)), tuple(_checks(contests, found, optimum)), _notes(plan))


def _optimum(plan: RatePlan) -> Spread:
    """What the simulation holds on the arrivals that the systems met, with the range over other arrivals."""
    found = [_search(simulated, plan, first_seed=1000 * number).rate_per_s for number in range(SIMULATIONS)]
    return Spread(found[0], min(found), max(found))


def _search(sample: Callable[[Window], Sample], plan: RatePlan, first_seed: int) -> MaxRate[Sample]:
    runs: Counter[float] = Counter()

    def one(rate_per_s: float) -> Sample:
        # Whoever is measured at a rate for the n-th time meets the same arrivals.
        seed = first_seed + round(100 * rate_per_s) + 100_000 * runs[rate_per_s]
        runs[rate_per_s] += 1
        return sample(Window.enough(rate_per_s, plan.window_s, plan.warmup_s, seed))

    def better_of_two(rate_per_s: float) -> Sample:
        first = one(rate_per_s)
        return first if first.meets(SLO_MS) else min(first, one(rate_per_s), key=lambda tried: tried.percentile_ms(99))

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


def _row(way: Way, rate: Spread | None, fleet: Fleet) -> BenchRow:
    if rate is None:
        return BenchRow.missing(CASE, way.name, fleet.failures.get(way.system, ""))
    return BenchRow(CASE, way.name, "rate that held .. failed", rate.value, rate.low, rate.high, "1/s")


def _modelled(optimum: Spread, plan: RatePlan) -> tuple[BenchRow, BenchRow]:
    long = RatePlan(plan.lowest_per_s, plan.growth, 0.005, 1, LONG_S, plan.warmup_s)
    limit = _search(simulated, long, first_seed=0).rate_per_s
    return (
        BenchRow(
            CASE, "simulation", "same arrivals, same rule", optimum.value, optimum.low, optimum.high, "1/s", "modelled"
        ),
        BenchRow(CASE, "simulation", f"windows of {LONG_S:.0f} s", limit, unit="1/s", number_class="modelled"),
    )


def _checks(contests: Sequence[_Contest], found: dict[Way, Spread | None], optimum: Spread) -> Iterator[BenchCheck]:
    best_of_ours = contests[0].ours
    share = _divided(_rate(found[best_of_ours]), optimum.value)
    yield BenchCheck.within(f"{CASE}: {best_of_ours.name} / simulated greedy optimum", share, low=SHARE_OF_OPTIMUM)
    for contest in contests:
        theirs = [_rate(found[way]) for way in contest.peers]
        best = math.nan if any(map(math.isnan, theirs)) else max(theirs, default=math.nan)
        above = _divided(_rate(found[contest.ours]), best)
        yield BenchCheck.above(f"{CASE}, {contest.rule}: {contest.ours.name} / best peer", above, 1.0)


def _rate(found: Spread | None) -> float:
    return math.nan if found is None else found.value


def _divided(ours: float, theirs: float) -> float:
    """A quotient of rates; a peer that holds none at all is beaten infinitely."""
    return ours / theirs if theirs else (math.inf if ours else math.nan)


def _notes(plan: RatePlan) -> tuple[str, ...]:
    return (
        f"A rate holds if a run of {plan.window_s:g} s or more proves p99 <= {SLO_MS} ms at 99 % confidence (early "
        "stopping, MLPerf's rule); a run that does not is followed by one more, because a single stall of the machine "
        f"would end the search; {plan.confirm} more confirm the result. 0: not even {plan.lowest_per_s:.0f}/s held.",
        "The simulation is greedy, and held to the same rule on the same arrivals. Its low..high comes from other "
        "arrivals: so much, and no more, can one search tell. In long windows the rule is less strict and the rate a "
        "bit higher.",
        "All ways meet the same arrivals at the same rate, so their ratio is finer than that range. `Goodput` knows "
        f"the limit of {SLO_MS} ms and answers every request, late ones late; `may drop` also gives up a request that "
        "cannot be answered in time any more. One that was given up counts as one that was too late.",
    )
