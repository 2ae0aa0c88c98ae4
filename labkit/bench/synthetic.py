"""Case (a): the synthetic service at given rates, every system and the queue simulation on the same arrivals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from labkit.bench.fleet import Fleet
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import Spread, in_turn, side_by_side, spread
from labkit.bench.sample import Sample, Window, measured, simulated
from labkit.bench.system import LABKIT, System
from labkit.bench.way import Way
from labkit.measure import NumberClass

__all__ = ["SyntheticPlan", "run"]

SIMULATION = "simulation"
CLOSE = 0.10


@dataclass(frozen=True, slots=True)
class SyntheticPlan:
    """Which rates, how often, how long. A low rate is measured for longer, until a p99 can be told."""

    rates_per_s: tuple[float, ...]
    rounds: int
    window_s: float
    warmup_s: float


Samples = dict[str, list[Sample]]


def run(fleet: Fleet, plan: SyntheticPlan) -> Part:
    """Measure all systems of the fleet in turn, round after round.

    Raises `MeasureError` if labkit itself could not be measured; a peer that fails is left out and named.
    """
    by_rate: dict[float, Samples] = {rate: defaultdict(list) for rate in plan.rates_per_s}
    for number, rate in product(range(plan.rounds), plan.rates_per_s):
        window = Window.enough(rate, plan.window_s, plan.warmup_s, seed=100 * number + round(rate))
        by_rate[rate][SIMULATION].append(simulated(window))
        for system in in_turn(fleet.systems, number):
            fleet.say(f"{rate:.0f}/s, round {number + 1} of {plan.rounds}: {system}")
            sample = fleet.attempt(system, measured, fleet, Way(str(system), system, "open"), window)
            if sample is not None:
                by_rate[rate][str(system)].append(sample)
    parts = [_rate(fleet, rate, samples, plan.rounds) for rate, samples in by_rate.items()]
    return Part.joined([*parts, Part(notes=_notes(plan))])


def _rate(fleet: Fleet, rate: float, samples: Samples, rounds: int) -> Part:
    case = f"synthetic service, {rate:.0f}/s"
    # A peer that failed half-way has too few rounds for a fair comparison.
    whole = {name: own for name, own in samples.items() if len(own) == rounds}
    rows = [row for system in fleet.systems for row in _system_rows(case, system, whole, fleet)]
    return Part((*rows, *_rows(case, SIMULATION, whole[SIMULATION])), _checks(case, fleet.systems, whole))


def _system_rows(case: str, system: System, whole: Samples, fleet: Fleet) -> list[BenchRow]:
    if str(system) not in whole:
        return [BenchRow.missing(case, str(system), fleet.failures.get(system, "too few rounds"))]
    own = whole[str(system)]
    rows = _rows(case, str(system), own)
    if system != LABKIT:
        shown = side_by_side(_percentiles(whole.get(str(LABKIT), []), 99), _percentiles(own, 99))
        rows.append(BenchRow(case, str(system), "labkit p99 / its p99", shown.value, shown.low, shown.high, "ratio"))
    return rows


def _rows(case: str, name: str, own: Sequence[Sample]) -> list[BenchRow]:
    kind: NumberClass = "modelled" if name == SIMULATION else "measured"
    spreads = [
        ("p50", spread(_percentiles(own, 50)), "ms"),
        ("p99", spread(_percentiles(own, 99)), "ms"),
        ("mean batch", spread([sample.mean_batch for sample in own]), "rows"),
    ]
    return [
        BenchRow(case, name, metric, found.value, found.low, found.high, unit, kind)
        for metric, found, unit in spreads
        if not math.isnan(found.value)
    ]


def _checks(case: str, systems: Sequence[System], whole: Samples) -> tuple[BenchCheck, ...]:
    ours = whole.get(str(LABKIT), [])
    checks = [BenchCheck.within(f"{case}: labkit p99 / best in-process peer", _best(systems, whole), high=1.0)]
    for level in (50, 99):
        close = side_by_side(_percentiles(ours, level), _percentiles(whole[SIMULATION], level))
        name = f"{case}: labkit p{level} / simulation"
        checks.append(BenchCheck.within(name, close.value, 1 - CLOSE, 1 + CLOSE))
    return tuple(checks)


def _best(systems: Sequence[System], whole: Samples) -> float:
    """The ratio to the best in-process peer, that is the largest of the ratios; `nan` if any of them is missing."""
    ours = _percentiles(whole.get(str(LABKIT), []), 99)
    peers = [str(system) for system in systems if system.kind == "in-process"]
    ratios: list[Spread] = [side_by_side(ours, _percentiles(whole.get(name, []), 99)) for name in peers]
    values = [found.value for found in ratios]
    return max(values) if values and not any(map(math.isnan, values)) else math.nan


def _percentiles(samples: Sequence[Sample], level: float) -> list[float]:
    return [sample.percentile_ms(level) for sample in samples]


def _notes(plan: SyntheticPlan) -> tuple[str, ...]:
    return (
        "The synthetic service sleeps 20 ms + 1 ms per row, at most 32 rows at once: it is the bench's yardstick, the "
        "same for all. In-process systems run it in a thread, as a model that blocks.",
        "Each system runs in a process of its own with the same open-loop generator and the same Poisson arrivals; "
        "latency counts from the intended send time. Peers that live in an event loop are called there, one task per "
        "request; LitServe and mosec are called over HTTP, keep-alive, on 127.0.0.1.",
        "BentoML stands for its CorkDispatcher, which learns how long to wait; batched, LitServe and mosec wait 5 ms; "
        "labkit is greedy.",
        f"Values are medians of {plan.rounds} rounds, low..high the lowest and highest round; ratios are geometric "
        "means over the rounds, low..high a 95 % t interval (of two rounds: both). The order of the systems changes "
        "from round to round.",
    )
