"""Case (c): what a request costs when the model does nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from labkit.bench.fleet import Fleet
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import in_turn, side_by_side, spread
from labkit.bench.system import LABKIT
from labkit.bench.way import Way

__all__ = ["CostPlan", "run"]

HALF = 0.5
BURST, AWAIT = "burst", "burst by await"
METRICS = {"cpu_s": "CPU time a request", "wall_s": "wall time a request"}


@dataclass(frozen=True, slots=True)
class CostPlan:
    """`requests` per round, `in_flight` of them submitted at once and awaited before the next come."""

    requests: int
    in_flight: int
    rounds: int


Costs = dict[str, dict[str, list[float]]]


def run(fleet: Fleet, plan: CostPlan) -> Part:
    """Time bursts of all in-process systems in turn.

    Raises `MeasureError` if labkit itself could not be measured.
    """
    case = "no-op model"
    ways = _ways(fleet)
    costs: Costs = {metric: defaultdict(list) for metric in METRICS}
    for number in range(plan.rounds):
        for way in in_turn(ways, number):
            fleet.say(f"{case}, round {number + 1} of {plan.rounds}: {way.name}")
            answer = fleet.attempt(way.system, _burst, fleet, way, plan)
            if answer is not None:
                for metric in METRICS:
                    costs[metric][way.name].append(answer[metric] / plan.requests * 1e6)
    rows = [row for way in ways for row in _rows(case, way, costs, fleet)]
    return Part(tuple(rows), _checks(case, ways, costs), (_note(plan),))


def _ways(fleet: Fleet) -> list[Way]:
    peers = [Way(str(system), system, BURST) for system in fleet.systems if system.kind == "in-process"]
    return [Way("labkit", LABKIT, BURST), Way("labkit, by await", LABKIT, AWAIT), *peers]


def _burst(fleet: Fleet, way: Way, plan: CostPlan) -> dict[str, float]:
    return fleet.ask(way.system, way.do, requests=plan.requests, in_flight=plan.in_flight)


def _rows(case: str, way: Way, costs: Costs, fleet: Fleet) -> list[BenchRow]:
    if not costs["cpu_s"][way.name]:
        return [BenchRow.missing(case, way.name, fleet.failures[way.system])]
    found = {name: spread(costs[metric][way.name]) for metric, name in METRICS.items()}
    return [BenchRow(case, way.name, name, one.value, one.low, one.high, "µs") for name, one in found.items()]


def _checks(case: str, ways: list[Way], costs: Costs) -> tuple[BenchCheck, ...]:
    peers = [way.name for way in ways if way.system != LABKIT]
    return tuple(
        BenchCheck.within(
            f"{case}: {name}, {way.name} / best in-process peer", _best(costs[metric], way, peers), high=HALF
        )
        for way in ways
        if way.system == LABKIT
        for metric, name in METRICS.items()
    )


def _best(costs: dict[str, list[float]], way: Way, peers: list[str]) -> float:
    """Ours / the cheapest peer's, that is the largest ratio; `nan` if any peer is missing."""
    ratios = [side_by_side(costs[way.name], costs[peer]).value for peer in peers]
    return max(ratios) if ratios and not any(map(math.isnan, ratios)) else math.nan


def _note(plan: CostPlan) -> str:
    return (
        f"No-op model: {plan.requests} requests in waves of {plan.in_flight}, each submitted at once and awaited; one "
        "wave more goes first and does not count. labkit is called by submit() and result(), and by await in an event "
        "loop as its peers are. The peers' model is a coroutine, their cheapest form; labkit's runs in its worker "
        "thread. CPU time counts all threads of the process; garbage collection leaves out what was imported."
    )
