"""Case (c): how long it takes to find the best cut of 1,000 layers on 72 devices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from labkit.bench.result import BenchRow, Part
from labkit.bench.rounds import spread
from labkit.sharding import Link, Problem, equal_count, partition

__all__ = ["CutPlan", "equal_cut", "run"]

LINK = Link(alpha_s=20e-6, bytes_per_s=50e9)
SPEEDS = (1.0, 0.5, 0.5, 0.25)


@dataclass(frozen=True, slots=True)
class CutPlan:
    """How large the problem is, and how often it is solved."""

    layers: int
    devices: int
    times: int


def run(say: Callable[[str], None], plan: CutPlan) -> Part:
    """Time the search on devices that are all alike, and on some of several speeds."""
    case = f"cut of {plan.layers} layers on {plan.devices} devices"
    say(case)
    kinds = {"all alike": (1.0,), "four speeds": SPEEDS}
    rows = [row for name, speeds in kinds.items() for row in _rows(case, name, _problem(plan, speeds), plan.times)]
    return Part(tuple(rows), notes=(_note(plan),))


def equal_cut(layers: int, stages: int) -> tuple[int, ...]:
    """The cut of layers that are all alike.

    >>> equal_cut(12, 3)
    (0, 4, 8, 12)
    """
    return equal_count(Problem(np.ones((stages, layers)))).boundaries


def _problem(plan: CutPlan, slowness: tuple[float, ...]) -> Problem:
    """Layers of unequal, random times; devices in a given order, `slowness` times as slow in turn."""
    rng = np.random.default_rng(0)
    layer_s = rng.uniform(0.5e-3, 1.5e-3, plan.layers)
    factors = np.resize(np.array(slowness), plan.devices)
    cut_bytes = rng.uniform(1e5, 1e6, plan.layers + 1)
    return Problem(np.outer(factors, layer_s), cut_bytes=cut_bytes, links=LINK)


def _rows(case: str, name: str, problem: Problem, times: int) -> list[BenchRow]:
    system = f"labkit, {name}"
    took_ms = []
    for _ in range(times + 1):
        begun_s = time.perf_counter()
        found = partition(problem)
        took_ms.append((time.perf_counter() - begun_s) * 1000)
    one = spread(took_ms[1:])
    return [
        BenchRow(case, system, "time", one.value, one.low, one.high, "ms"),
        BenchRow(case, system, "the first time in this process", took_ms[0], unit="ms"),
        BenchRow(
            case, system, "longest stage / lower bound", found.bottleneck_s / _least_s(problem), number_class="modelled"
        ),
    ]


def _least_s(problem: Problem) -> float:
    """No cut can do better: the largest layer on the fastest device, and all work spread evenly without links."""
    fastest = problem.layer_s.min(axis=0)
    even = 1 / float((1 / problem.layer_s.sum(axis=1)).sum())
    return max(float(fastest.max()), even)


def _note(plan: CutPlan) -> str:
    return (
        f"Cut: exact, throughput objective, devices in a given order, {plan.times} repeats after the first; the first "
        "loads compiled code from the cache, or compiles it."
    )
