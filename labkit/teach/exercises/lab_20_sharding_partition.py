"""Where to cut: write what a cut costs, then place one boundary where that is least."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from labkit.sharding.link import Link
from labkit.sharding.price import price
from labkit.sharding.problem import Problem
from labkit.teach.exercise import Case, Exercise

__all__ = ["EXERCISES", "LAB", "best_boundary", "period_ms"]

LAB = "20_sharding_partition"


def period_ms(
    layer_ms: list[float], cut_kb: list[float], boundaries: list[int], link_ms: float, kb_per_ms: float
) -> float:
    """Milliseconds between two results: the longest of all stages and of all links between them."""
    stages = [sum(layer_ms[first:last]) for first, last in pairwise(boundaries)]
    links = [link_ms + cut_kb[cut] / kb_per_ms for cut in boundaries[1:-1]]
    return max([*stages, *links])


def best_boundary(layer_ms: list[float], slower: float) -> int:
    """The first layer of the second of two stages, whose device is `slower` times slower; links cost nothing."""
    cuts = range(1, len(layer_ms))
    return min(cuts, key=lambda cut: max(sum(layer_ms[:cut]), slower * sum(layer_ms[cut:])))


def _period_cases() -> list[Case]:
    def case(boundaries: list[int], link_ms: float, kb_per_ms: float, why: str) -> Case:
        layer_ms, cut_kb = [1.0, 4.0, 2.0, 2.0, 3.0], [10.0, 800.0, 400.0, 100.0, 50.0, 1.0]
        link = Link(link_ms / 1000, 1e6 * kb_per_ms)
        layer_s, cut_bytes = np.array([layer_ms] * 3) / 1000, 1000 * np.array(cut_kb)
        problem = Problem(layer_s, cut_bytes, links=link)
        given = {"layer_ms": layer_ms, "cut_kb": cut_kb, "boundaries": boundaries}
        # The library's own price, which shares no code with the solution.
        expected = 1000 * price(problem, boundaries).bottleneck_s
        return Case({**given, "link_ms": link_ms, "kb_per_ms": kb_per_ms}, expected, why)

    return [
        case([0, 2, 5], 0.1, 1000.0, "Stage 1 takes 2 + 2 + 3 = 7 ms, and nothing takes longer."),
        case([0, 2, 3, 5], 0.1, 1000.0, "Three stages of 5, 2 and 5 ms."),
        case([0, 2, 5], 0.1, 50.0, "400 kB at 50 kB/ms take 8 ms, and 0.1 ms come on top: the link is the slowest."),
        case([0, 4, 5], 9.5, 50.0, "A link costs its fixed part even where little crosses it."),
        case([0, 5], 0.1, 0.5, "One stage has no link; what goes in and comes out at the ends is not counted."),
    ]


def _boundary_cases() -> list[Case]:
    def case(layer_ms: list[float], slower: float, why: str) -> Case:
        problem = Problem(np.outer([1.0, slower], layer_ms))
        costs = [price(problem, (0, cut, len(layer_ms))).bottleneck_s for cut in range(1, len(layer_ms))]
        return Case({"layer_ms": layer_ms, "slower": slower}, 1 + int(np.argmin(costs)), why)

    return [
        case([2.0] * 6, 1.0, "Six equal layers and equal devices: three for each."),
        case([2.0] * 6, 2.0, "The slow device gets half as many: after four layers both take 8 ms."),
        case([1.0, 1.0, 9.0, 1.0, 1.0, 1.0], 1.0, "The heavy layer belongs to the stage that is otherwise shorter."),
        case([9.0, 1.0, 1.0, 1.0], 1.0, "Each stage needs a layer, and one layer is more than all others."),
        case([1.0, 2.0, 3.0], 5.0, "Even the slowest device gets the last layer, for nobody else is to have it."),
    ]


EXERCISES = (
    Exercise(
        id="20a",
        lab=LAB,
        task="Write period_ms(layer_ms, cut_kb, boundaries, link_ms, kb_per_ms): the time between two results.",
        hints=(
            "Stage k has the layers boundaries[k] to boundaries[k + 1] - 1. What does each stage take?",
            "Between two stages lies a link: link_ms + cut_kb[cut] / kb_per_ms, for each boundary but the outer two.",
            "All stages and links work at the same time, so the slowest of them sets the pace: max, not sum.",
        ),
        reference=period_ms,
        cases=_period_cases,
    ),
    Exercise(
        id="20b",
        lab=LAB,
        task="Write best_boundary(layer_ms, slower): where to cut in two when the second device is slower.",
        hints=(
            "For each cut the first stage takes sum(layer_ms[:cut]). What does the second take, on the slower device?",
            "Try every cut from 1 to len(layer_ms) - 1 and take the one whose longer stage is shortest.",
        ),
        reference=best_boundary,
        cases=_boundary_cases,
    ),
)
