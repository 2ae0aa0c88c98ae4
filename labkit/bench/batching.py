"""`labkit bench batching`: labkit's batcher beside its public peers, interleaved in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labkit.bench import cost, highest_rate, real_models, synthetic
from labkit.bench.cost import CostPlan
from labkit.bench.fleet import Fleet
from labkit.bench.highest_rate import RatePlan
from labkit.bench.machine import facts
from labkit.bench.real_models import ModelPlan
from labkit.bench.result import BenchResult, Part
from labkit.bench.synthetic import SyntheticPlan
from labkit.bench.system import BATCHED, BENTOML, LABKIT, LITSERVE, MOSEC, REAL_MODELS, System
from labkit.errors import MeasureError

__all__ = ["FULL", "QUICK", "Plan", "run", "run_plan"]

_REMEDY = "Close other programs and run it again; what is said on the way names the reasons."
CAPS = (("efficientnet-lite0", 8), ("minilm", 32))


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole benchmark: who takes part, and the plan of each case."""

    systems: tuple[System, ...]
    synthetic: SyntheticPlan
    rate: RatePlan
    cost: CostPlan
    models: ModelPlan
    left_out: str = ""


FULL = Plan(
    systems=(LABKIT, BENTOML, BATCHED, LITSERVE, MOSEC),
    synthetic=SyntheticPlan((50.0, 200.0, 400.0), rounds=3, window_s=8.0, warmup_s=2.0),
    rate=RatePlan(lowest_per_s=200.0, growth=1.6, tolerance=0.01, confirm=1, window_s=8.0, warmup_s=1.5),
    cost=CostPlan(requests=20_000, in_flight=1_000, rounds=12),
    models=ModelPlan(CAPS, rounds=8, saturate_s=2.5, latency_rounds=4, latency_s=10.0, warmup_s=1.5),
)
QUICK = Plan(
    systems=(LABKIT, BENTOML, BATCHED),
    synthetic=SyntheticPlan((200.0, 400.0), rounds=2, window_s=3.5, warmup_s=0.8),
    rate=RatePlan(300.0, growth=1.5, tolerance=0.02, confirm=0, window_s=3.0, warmup_s=0.8, dropping=False),
    cost=CostPlan(requests=20_000, in_flight=1_000, rounds=5),
    models=ModelPlan(CAPS, rounds=4, saturate_s=2.0, latency_rounds=2, latency_s=3.0, warmup_s=0.8),
    left_out="Left out by --quick: LitServe and mosec (over HTTP), 50 requests/s, dropping, repeats and long windows.",
)


def run(quick: bool = False, say: Callable[[str], None] = lambda text: None) -> BenchResult:
    """Measure; `say` hears what is being done.

    Raises `MeasureError` if labkit itself could not be measured.
    """
    return run_plan(QUICK if quick else FULL, say)


def run_plan(plan: Plan, say: Callable[[str], None]) -> BenchResult:
    """Run all cases of `plan`, one after the other; no process is left behind, however it ends."""
    with Fleet(plan.systems, say) as fleet:
        fleet.prepare()
        parts = [
            synthetic.run(fleet, plan.synthetic),
            highest_rate.run(fleet, plan.rate),
            cost.run(fleet, plan.cost),
        ]
        for system in plan.systems:
            fleet.release(system)
        parts.append(real_models.run(fleet, plan.models))
        fleet.release(REAL_MODELS)
    parts.append(Part(notes=(plan.left_out,) if plan.left_out else ()))
    result = BenchResult.of("batching", facts(), parts)
    if all(check.holds is None for check in result.checks):
        raise MeasureError(f"none of {len(result.checks)} checks could be measured", _REMEDY)
    return result
