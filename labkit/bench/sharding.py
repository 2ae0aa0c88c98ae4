"""`labkit bench sharding`: stages, hops, cuts, losses and slow devices, each beside what it is held to, in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from labkit.bench import cuts, hops, losses, slowdown, stages
from labkit.bench.cuts import CutPlan
from labkit.bench.fleet import Fleet
from labkit.bench.hops import HopPlan
from labkit.bench.losses import LossPlan
from labkit.bench.machine import facts
from labkit.bench.result import BenchResult, Part
from labkit.bench.slowdown import SlowPlan
from labkit.bench.stages import StagePlan
from labkit.errors import MeasureError

__all__ = ["FULL", "QUICK", "Plan", "run", "run_plan"]

_REMEDY = "Close other programs and run it again; what is said on the way names the reasons."
# A block takes a millisecond or so on one core, and 384 KiB go from one to the next.
FEW_BLOCKS = {"blocks": 6, "width": 512, "rows": 192}
# Eight times the work, for four times the bytes.
LARGE_BLOCKS = {"blocks": 6, "width": 1024, "rows": 384}
# A model that people use: large activations, layers of very different times.
REAL_MODEL = {"name": "efficientnet-lite0", "rows": 8}
MODELS = (FEW_BLOCKS, LARGE_BLOCKS, REAL_MODEL)
# So many that a boundary can be moved finely.
MANY_BLOCKS = {"blocks": 12, "width": 512, "rows": 192}
# Results come so closely that a loss shows between them.
SMALL_BLOCKS = {"blocks": 12, "width": 512, "rows": 64}


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole benchmark: the plan of each case."""

    stages: StagePlan
    hops: HopPlan
    cuts: CutPlan
    losses: LossPlan
    slowdown: SlowPlan
    left_out: str = ""


FULL = Plan(
    stages=StagePlan(
        MODELS,
        counts=(2, 3),
        rounds=6,
        window_s=4.0,
        warmup_s=0.5,
        step_microbatches=32,
    ),
    hops=HopPlan(sizes_bytes=(1 << 20, 2 << 20, 4 << 20), rounds=6, times=150),
    cuts=CutPlan(layers=1000, devices=72, times=30),
    losses=LossPlan(SMALL_BLOCKS, kills=15, hangs=6, lead_s=0.5, quiet_s=4.0),
    slowdown=SlowPlan(MANY_BLOCKS, rounds=6, window_s=4.0, warmup_s=0.5, settle_s=40.0, calm_s=4.0),
)
QUICK = Plan(
    stages=replace(FULL.stages, rounds=3, window_s=1.5, warmup_s=0.3),
    hops=HopPlan(sizes_bytes=(1 << 20, 2 << 20, 4 << 20), rounds=2, times=40),
    cuts=CutPlan(layers=1000, devices=72, times=10),
    losses=LossPlan(SMALL_BLOCKS, kills=6, hangs=2, lead_s=0.3, quiet_s=2.0),
    slowdown=SlowPlan(MANY_BLOCKS, rounds=3, window_s=1.5, warmup_s=0.3, settle_s=15.0, calm_s=2.0),
    left_out="Left out by --quick: repeats and long windows; every case and every peer takes part.",
)


def run(quick: bool = False, say: Callable[[str], None] = lambda text: None) -> BenchResult:
    """Measure; `say` hears what is being done.

    Raises `MeasureError` if labkit itself could not be measured.
    """
    return run_plan(QUICK if quick else FULL, say)


def run_plan(plan: Plan, say: Callable[[str], None]) -> BenchResult:
    """Run all cases of `plan`, one after the other; no process is left behind, however it ends."""
    with Fleet((), say) as fleet:
        parts = [
            stages.run(fleet, plan.stages),
            hops.run(fleet, plan.hops),
            cuts.run(fleet.say, plan.cuts),
            losses.run(fleet, plan.losses),
            slowdown.run(fleet, plan.slowdown),
        ]
    parts.append(Part(notes=(plan.left_out,) if plan.left_out else ()))
    result = BenchResult.of("sharding", facts(), parts)
    if all(check.holds is None for check in result.checks):
        raise MeasureError(f"none of {len(result.checks)} checks could be measured", _REMEDY)
    return result
