"""The live pipeline: how much of the stages' time is bubbles."""

from __future__ import annotations

import numpy as np

from labkit.sharding.price import price
from labkit.sharding.problem import Problem
from labkit.teach.exercise import Case, Exercise

__all__ = ["EXERCISES", "LAB", "bubble_share"]

LAB = "21_sharding_live"


def bubble_share(stage_ms: list[float], microbatches: int) -> float:
    """Share of all stages' time that they stand idle while so many microbatches pass through an empty pipeline."""
    makespan_ms = sum(stage_ms) + (microbatches - 1) * max(stage_ms)
    return 1 - microbatches * sum(stage_ms) / (len(stage_ms) * makespan_ms)


def _cases() -> list[Case]:
    def case(stage_ms: list[float], microbatches: int, why: str) -> Case:
        problem = Problem(np.array([stage_ms] * len(stage_ms)) / 1000)
        plan = price(problem, range(len(stage_ms) + 1))
        expected = plan.predict(microbatches, microbatches).bubble
        return Case({"stage_ms": stage_ms, "microbatches": microbatches}, expected, why)

    return [
        case([5.0, 5.0, 5.0, 5.0], 1, "One microbatch is in one of four stages at a time: three quarters are idle."),
        case([5.0, 5.0, 5.0, 5.0], 4, "Equal stages: 1 - m / (m + S - 1), here 1 - 4/7."),
        case([5.0, 5.0, 5.0, 5.0], 16, "1 - 16/19: four times as many microbatches as stages leave 16 %."),
        case([1.0, 1.0, 2.0, 1.0], 64, "The others wait for the slow stage, however many microbatches come."),
        case([7.0], 3, "One stage is never idle."),
    ]


EXERCISES = (
    Exercise(
        id="21a",
        lab=LAB,
        task="Write bubble_share(stage_ms, microbatches): which share of the stages' time is spent waiting?",
        hints=(
            "Draw the Gantt chart for two stages and three microbatches. When does the last one leave?",
            "The first passes all stages; the others leave one by one at the pace of the slowest: "
            "sum(stage_ms) + (m - 1)·max(stage_ms).",
            "Each of the S stages has that long, and together they compute m·sum(stage_ms) of it.",
        ),
        reference=bubble_share,
        cases=_cases,
    ),
)
