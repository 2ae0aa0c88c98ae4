"""Case (d): a stage is killed, or hangs, under load: when that is noticed, when it is replaced, what results see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.bench.crew import leave
from labkit.bench.cuts import equal_cut
from labkit.bench.fleet import Fleet
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import Spread, spread
from labkit.bench.system import System

__all__ = ["LossPlan", "run"]

LABKIT = System("labkit", "labkit_pipeline", "own")
STAGES = 3
METRICS = {"noticed_s": "noticed", "replaced_s": "replaced", "gap_s": "longest gap in results"}
KILL_GOALS_MS = {"noticed_s": 25.0, "replaced_s": 60.0, "gap_s": 75.0}
WORDS = {"kill": "kill, a warm spare waits", "hang": "hang, a warm spare waits"}


@dataclass(frozen=True, slots=True)
class LossPlan:
    """The model, how many faults of each kind, and how long the load runs before each, and without any."""

    model: Mapping[str, int]
    kills: int
    hangs: int
    lead_s: float
    quiet_s: float


def run(fleet: Fleet, plan: LossPlan) -> Part:
    """Hurt one stage after the other. Raises `MeasureError` if the pipeline does not survive it."""
    boundaries = equal_cut(plan.model["blocks"], STAGES)
    fleet.say("losses: starting")
    try:
        fleet.ask(LABKIT, "open", model=dict(plan.model), boundaries=boundaries, spares=1)
        quiet_s = float(fleet.ask(LABKIT, "quiet", seconds=plan.quiet_s)["gap_s"])
        found = {
            how: [_hurt(fleet, plan, how, number) for number in range(count)]
            for how, count in (("kill", plan.kills), ("hang", plan.hangs))
        }
    finally:
        leave(fleet, [LABKIT])
    return _part(plan, found, quiet_s)


def _hurt(fleet: Fleet, plan: LossPlan, how: str, number: int) -> dict[str, Any]:
    stage = number % STAGES
    fleet.say(f"{how} of stage {stage}, {number + 1}")
    return fleet.ask(LABKIT, "fault", how=how, stage=stage, lead_s=plan.lead_s)


def _part(plan: LossPlan, found: Mapping[str, list[dict[str, Any]]], quiet_s: float) -> Part:
    rows = [BenchRow("no fault", "labkit", METRICS["gap_s"], quiet_s * 1000, unit="ms")]
    for how, trials in found.items():
        for key, name in METRICS.items():
            one = _ms(trials, key)
            rows.append(BenchRow(WORDS[how], "labkit", f"{name}, median", one.value, one.low, one.high, "ms"))
    trials = [trial for own in found.values() for trial in own]
    asked, wrong = sum(trial["asked"] for trial in trials), sum(trial["wrong"] for trial in trials)
    rows.append(BenchRow("all faults", "labkit", f"wrong or missing of {asked} answers", wrong))
    right = BenchCheck.within("kill and hang: wrong or missing answers", wrong if asked else math.nan, high=0)
    return Part(tuple(rows), (*_checks(found["kill"]), right), (_note(plan),))


def _ms(trials: list[dict[str, Any]], key: str) -> Spread:
    """What the trials took; one in which it was not seen leaves the number out."""
    values = [trial[key] for trial in trials]
    return Spread() if None in values else spread([value * 1000 for value in values])


def _checks(kills: list[dict[str, Any]]) -> list[BenchCheck]:
    checks = []
    for key, goal_ms in KILL_GOALS_MS.items():
        one = _ms(kills, key)
        for name, value in (("median", one.value), ("worst", one.high)):
            text = f"kill: {METRICS[key]} after, ms, {name} of {len(kills)}"
            checks.append(BenchCheck.within(text, value, high=goal_ms))
    return checks


def _note(plan: LossPlan) -> str:
    return (
        f"Losses: {STAGES} stages and one spare under a closed load, each stage in turn; low..high are the best and "
        "the worst of all faults. Times count from just before the signal (SIGKILL, SIGSTOP): noticed, when the "
        "controller writes the step off; replaced, when the successor begins its first step; the gap is the longest "
        "time between two results that ends after the fault. A hang shows itself by its deadline of 0.5 s or more."
    )
