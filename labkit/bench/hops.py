"""Case (b): one hop from process to process, copying in and copying out included: labkit's ring and other carriers."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from labkit.bench.crew import installed, leave
from labkit.bench.fleet import Fleet
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import in_turn, side_by_side, spread
from labkit.bench.system import System

__all__ = ["RING", "HopPlan", "one_way_s", "run"]

RING = System("labkit, the ring", "hop_ring", "own")
ENGINE = System("labkit, the whole engine", "hop_engine", "own")
PIPE = System("multiprocessing.Pipe", "hop_pipe", "in-process")
PYZMQ = installed("pyzmq PAIR over TCP", "hop_zmq", "pyzmq")
GLOO = installed("gloo send and recv, torch", "hop_gloo", "torch")
RAY = installed("Ray actor", "hop_ray", "ray")
PEERS = (PIPE, PYZMQ, GLOO, RAY)
SYSTEMS = (RING, ENGINE, *PEERS)
START_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True)
class HopPlan:
    """The values' sizes; in each round each system sends each of them `times` there and back."""

    sizes_bytes: tuple[int, ...]
    rounds: int
    times: int


Hops = dict[tuple[System, int], list[float]]


def run(fleet: Fleet, plan: HopPlan) -> Part:
    """Time all carriers in turn. Raises `MeasureError` if labkit's own could not be measured."""
    found: Hops = defaultdict(list)
    try:
        for number in range(plan.rounds):
            for system in in_turn(SYSTEMS, number):
                fleet.say(f"one hop, round {number + 1} of {plan.rounds}: {system}")
                for size_bytes in plan.sizes_bytes:
                    seconds = fleet.attempt(system, one_way_s, fleet, size_bytes, plan.times, system)
                    if seconds is not None:
                        found[system, size_bytes].append(seconds * 1000)
    finally:
        leave(fleet, SYSTEMS)
    parts = [_size(fleet, found, size_bytes) for size_bytes in plan.sizes_bytes]
    return Part.joined([*parts, Part(notes=(_note(plan),))])


def one_way_s(fleet: Fleet, size_bytes: int, times: int, system: System = RING) -> float:
    """Seconds of one hop: half of the median round trip."""
    answer = fleet.ask(system, "bounce", limit_s=START_LIMIT_S, size_bytes=size_bytes, times=times)
    return float(answer["ms"]) / 1000


def _size(fleet: Fleet, found: Hops, size_bytes: int) -> Part:
    case = f"one hop of {size_bytes / 2**20:g} MiB"
    rows = [_row(fleet, case, system, found[system, size_bytes]) for system in SYSTEMS]
    ratios = {peer: side_by_side(found[RING, size_bytes], found[peer, size_bytes]) for peer in PEERS}
    rows += [
        BenchRow(case, str(RING), f"the ring / {peer}", one.value, one.low, one.high, "ratio")
        for peer, one in ratios.items()
        if not math.isnan(one.value)
    ]
    values = [one.value for one in ratios.values()]
    worst = math.nan if any(map(math.isnan, values)) else max(values)
    return Part(tuple(rows), (BenchCheck.within(f"{case}: labkit's ring / fastest peer", worst, high=1.0),))


def _row(fleet: Fleet, case: str, system: System, ms: list[float]) -> BenchRow:
    if not ms:
        return BenchRow.missing(case, str(system), fleet.failures[system])
    one = spread(ms)
    return BenchRow(case, str(system), "one way, median", one.value, one.low, one.high, "ms")


def _note(plan: HopPlan) -> str:
    return (
        f"One hop: half a round trip between two processes, {plan.times} in a row, one after the other; the value is "
        "the sender's own before and the receiver's own after. Tensors for labkit and gloo, arrays for the others, as "
        "each carries them fastest; one thread copies. gloo and pyzmq are given no structure to carry, the ring, the "
        "pipe and Ray pickle it. The whole engine: a stage that hands its input back, submit() to the result, half."
    )
