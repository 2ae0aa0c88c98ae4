"""Case (e): one stage becomes twice as slow: what throughput is left once the boundary has moved."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.bench.crew import ask_all, leave
from labkit.bench.cuts import equal_cut
from labkit.bench.fleet import Fleet
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import in_turn, side_by_side, spread
from labkit.bench.system import System
from labkit.sharding import Problem, partition

__all__ = ["SlowPlan", "run"]

STAGES = 2
SLOW = 0
FACTOR = 2.0
GOAL = 0.95
ANSWER_LIMIT_S = 120.0
CASE = f"stage {SLOW} of {STAGES} becomes {FACTOR:g} times slower"
MOVED = System("labkit, boundaries moved", "labkit_pipeline", "own")
OPTIMUM = System("labkit, cut for it from the start", "labkit_pipeline", "own")
UNMOVED = System("labkit, boundaries fixed", "labkit_pipeline", "own")
SYSTEMS = (MOVED, OPTIMUM, UNMOVED)


@dataclass(frozen=True, slots=True)
class SlowPlan:
    """The model, how long each is measured, and how long the boundaries may take to settle."""

    model: Mapping[str, int]
    rounds: int
    window_s: float
    warmup_s: float
    settle_s: float
    calm_s: float


def run(fleet: Fleet, plan: SlowPlan) -> Part:
    """Slow a stage down under load and compare with pipelines that have known it all along."""
    fleet.say(f"{CASE}: starting")
    blocks = plan.model["blocks"]
    equal = equal_cut(blocks, STAGES)
    slowdowns = [FACTOR if stage == SLOW else 1.0 for stage in range(STAGES)]
    best = partition(Problem(np.outer(slowdowns, np.ones(blocks)))).boundaries
    common: dict[str, Any] = {"model": dict(plan.model)}
    per_s: dict[System, list[float]] = defaultdict(list)
    try:
        requests = {
            MOVED: {**common, "boundaries": equal, "balanced": True},
            OPTIMUM: {**common, "boundaries": best, "slowdowns": slowdowns},
            UNMOVED: {**common, "boundaries": equal, "slowdowns": slowdowns},
        }
        ask_all(fleet, "open", requests)
        before_per_s = _rate_per_s(fleet, plan, MOVED)
        fleet.say(f"{CASE}: waiting for the boundaries to settle")
        limits = {"settle_s": plan.settle_s, "calm_s": plan.calm_s, "limit_s": plan.settle_s + ANSWER_LIMIT_S}
        settled = fleet.ask(MOVED, "slow", stage=SLOW, factor=FACTOR, **limits)
        for number in range(plan.rounds):
            for system in in_turn(SYSTEMS, number):
                fleet.say(f"{CASE}, round {number + 1} of {plan.rounds}: {system.name}")
                per_s[system].append(_rate_per_s(fleet, plan, system))
    finally:
        leave(fleet, SYSTEMS)
    return _part(per_s, before_per_s, settled, best)


def _rate_per_s(fleet: Fleet, plan: SlowPlan, system: System) -> float:
    return float(fleet.ask(system, "run", seconds=plan.window_s, warmup_s=plan.warmup_s)["per_s"])


def _part(
    per_s: Mapping[System, list[float]], before_per_s: float, settled: Mapping[str, Any], best: tuple[int, ...]
) -> Part:
    rows = [BenchRow(CASE, MOVED.name, "microbatches, before", before_per_s, unit="1/s")]
    for system in SYSTEMS:
        one = spread(per_s[system])
        rows.append(BenchRow(CASE, system.name, "microbatches, after", one.value, one.low, one.high, "1/s"))
    share = side_by_side(per_s[MOVED], per_s[OPTIMUM])
    gain = side_by_side(per_s[MOVED], per_s[UNMOVED])
    moved_s = math.nan if settled["moved_s"] is None else settled["moved_s"]
    rows += [
        BenchRow(CASE, MOVED.name, "share of the new optimum", share.value, share.low, share.high, "share"),
        BenchRow(CASE, MOVED.name, "against fixed boundaries", gain.value, gain.low, gain.high, "ratio"),
        BenchRow(CASE, MOVED.name, "until the first move", moved_s, unit="s"),
        BenchRow(CASE, MOVED.name, "moves", settled["moves"]),
    ]
    check = BenchCheck.within("slowdown: recovered throughput / new optimum", share.value, low=GOAL)
    note = (
        f"Slowdown: the stage does its work {FACTOR:g} times over: the slow device is emulated, its work is real. The "
        f"new optimum is a pipeline cut at {list(best)} from the start, the exact cut for it; the boundaries moved to "
        f"{settled['boundaries']}."
    )
    return Part(tuple(rows), (check,), (note,))
