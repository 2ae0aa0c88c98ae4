"""Sharding against batching: what one request waits for in a pipeline."""

from __future__ import annotations

import numpy as np

from labkit.sharding.link import Link
from labkit.sharding.price import price
from labkit.sharding.problem import Problem
from labkit.teach.exercise import Case, Exercise

__all__ = ["EXERCISES", "LAB", "request_ms"]

LAB = "22_sharding_vs_batching"


def request_ms(stage_ms: list[float], link_ms: float, microbatches: int) -> float:
    """Milliseconds of one request of so many microbatches through an empty pipeline."""
    links = len(stage_ms) - 1
    pace_ms = max([*stage_ms, *[link_ms] * links])
    return sum(stage_ms) + links * link_ms + (microbatches - 1) * pace_ms


def _cases() -> list[Case]:
    def case(stage_ms: list[float], link_ms: float, microbatches: int, why: str) -> Case:
        problem = Problem(np.array([stage_ms] * len(stage_ms)) / 1000, links=Link(link_ms / 1000))
        plan = price(problem, range(len(stage_ms) + 1))
        expected = 1000 * plan.predict(microbatches, microbatches).makespan_s
        return Case({"stage_ms": stage_ms, "link_ms": link_ms, "microbatches": microbatches}, expected, why)

    return [
        case([20.0], 0.1, 1, "One stage has no link."),
        case([10.0, 10.0], 0.1, 1, "Cut in two, the request still needs all 20 ms, and now a link: 20.1."),
        case([5.0, 5.0, 5.0, 5.0], 0.1, 1, "Four stages: 20 ms and three links. More shards, longer."),
        case([5.0, 5.0, 5.0, 5.0], 0.1, 4, "The other three microbatches follow at 5 ms each: 35.3 ms, not 80."),
        case([5.0, 8.0, 5.0], 0.1, 3, "They follow at the pace of the slowest stage: 18.2 + 2·8."),
        case([2.0, 2.0], 6.0, 3, "Here the link is the slowest: 10 + 2·6."),
    ]


EXERCISES = (
    Exercise(
        id="22a",
        lab=LAB,
        task="Write request_ms(stage_ms, link_ms, microbatches): how long one request takes through an empty pipeline.",
        hints=(
            "Follow a single microbatch: which stages and how many links does it pass? Nothing of that is skipped.",
            "S stages have S - 1 links. One microbatch takes sum(stage_ms) + (S - 1)·link_ms.",
            "Each further one leaves later by the longest of all stages and links.",
        ),
        reference=request_ms,
        cases=_cases,
    ),
)
