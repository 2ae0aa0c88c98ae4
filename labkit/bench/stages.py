"""Case (a): two and three stages, labkit's and torch's, beside the model in one piece and the bound of the stages."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labkit.bench.crew import ask_all, installed, leave
from labkit.bench.cuts import equal_cut
from labkit.bench.fleet import Fleet
from labkit.bench.hops import RING, one_way_s
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import in_turn, side_by_side, spread
from labkit.bench.system import System
from labkit.errors import MeasureError
from labkit.measure.provenance import usable_cores

__all__ = ["StagePlan", "run"]

LABKIT = System("labkit", "labkit_pipeline", "own")
TORCH = installed("torch.distributed.pipelining", "torch_rank", "torch")
TORCH_KEPT = replace(TORCH, name=f"{TORCH.name}, memory kept")
TORCHES = (TORCH, TORCH_KEPT)
UNSHARDED = System("in one piece", "bare_stage", "own")
BOUND = System("bound", "bare_stage", "own")
WAYS = (LABKIT, TORCH, TORCH_KEPT, UNSHARDED, BOUND)
TORCH_GOAL = 1.2
BOUND_GOAL = 0.95
LINK_TIMES = 40
# A real model may have to be fetched first.
PLAN_LIMIT_S = 900.0
# Microbatches that labkit lets in for each worker. Two suffice; more even out what a stage loses now and then.
DEPTH = 4
# How much the mean size of two systems' outputs may differ before they are not the same model.
SAME = 1e-3


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The models (see `peers/net.py`), into how many stages each is cut, and how long each is measured."""

    models: tuple[Mapping[str, Any], ...]
    counts: tuple[int, ...]
    rounds: int
    window_s: float
    warmup_s: float
    step_microbatches: int


@dataclass(frozen=True, slots=True)
class _Cut:
    """A model in `stages` stages, on so many threads each; who takes part, and the rates found so far."""

    plan: StagePlan
    model: Mapping[str, Any]
    link_s: float
    boundaries: tuple[int, ...]
    threads: int
    per_s: dict[System, list[float]] = field(default_factory=lambda: defaultdict(list))
    alone_per_s: list[list[float]] = field(default_factory=list)

    @property
    def stages(self) -> int:
        return len(self.boundaries) - 1

    @property
    def case(self) -> str:
        return f"{self.stages} stages, {self.model.get('name') or '{width} wide'.format_map(self.model)}"

    def parts(self, system: System) -> list[System]:
        """A worker for each stage: torch's ranks, and the stages by themselves."""
        return [System(f"{system.name}, stage {stage}", system.worker, "own") for stage in range(self.stages)]

    def ask_parts(self, fleet: Fleet, system: System, do: str, **fields: Any) -> list[dict[str, Any]]:
        """Ask all of a system's workers the same, at once."""
        answers = ask_all(fleet, do, dict.fromkeys(self.parts(system), fields))
        return [answers[part] for part in self.parts(system)]

    @property
    def one_threads(self) -> int:
        """How many threads the model in one piece has: the same cores as all stages together."""
        return min(usable_cores(), self.stages * self.threads)


def run(fleet: Fleet, plan: StagePlan) -> Part:
    """Measure each model in each number of stages. Raises `MeasureError` if labkit itself could not be measured."""
    parts = [_part(fleet, plan, model, count) for model in plan.models for count in plan.counts]
    return Part.joined([*parts, Part(notes=_notes(plan))])


def _part(fleet: Fleet, plan: StagePlan, model: Mapping[str, Any], count: int) -> Part:
    """One model in `count` stages; a real model that cannot be had is left out and named."""
    threads = max(1, usable_cores() // count)
    try:
        boundaries, edge_bytes = _where(fleet, model, count, threads)
    except MeasureError as error:
        missing = _Cut(plan, model, math.nan, tuple(range(count + 1)), threads)
        return Part((BenchRow.missing(missing.case, str(LABKIT), error.problem),), _checks(missing))
    link_s = one_way_s(fleet, edge_bytes, LINK_TIMES)
    leave(fleet, [RING])
    return _measure(fleet, _Cut(plan, model, link_s, boundaries, threads))


def _where(fleet: Fleet, model: Mapping[str, Any], count: int, threads: int) -> tuple[tuple[int, ...], int]:
    """Where all of them cut, and the bytes of the largest value that crosses a cut.

    Blocks that are all alike into equal counts; a real model, if it can be had, as labkit's profile says.
    """
    if "name" not in model:
        return equal_cut(model["blocks"], count), _activation_bytes(model)
    fleet.say(f"{model['name']}, {count} stages: its layers are measured")
    try:
        found = fleet.ask(LABKIT, "plan", limit_s=PLAN_LIMIT_S, model=dict(model), stages=count, threads=threads)
    finally:
        fleet.release(LABKIT)
    return tuple(found["boundaries"]), int(found["edge_bytes"])


def _activation_bytes(model: Mapping[str, Any]) -> int:
    """What crosses each cut between equal blocks, for one microbatch of float32."""
    return 4 * int(model["rows"] * model["width"])


def _measure(fleet: Fleet, cut: _Cut) -> Part:
    try:
        with tempfile.TemporaryDirectory() as folder:
            sizes = _open(fleet, cut, Path(folder))
            _agree(cut, sizes)
            one_s = _time_one_s(fleet)
            for number in range(cut.plan.rounds):
                for system in in_turn(WAYS, number):
                    fleet.say(f"{cut.case}, round {number + 1} of {cut.plan.rounds}: {system}")
                    rate_per_s = fleet.attempt(system, _rate_per_s, fleet, cut, system, one_s)
                    if rate_per_s is not None:
                        cut.per_s[system].append(rate_per_s)
    finally:
        leave(fleet, [LABKIT])
        for system in (UNSHARDED, *(part for whole in (*TORCHES, BOUND) for part in cut.parts(whole))):
            fleet.release(system)
    return Part(tuple(_rows(fleet, cut)), _checks(cut))


def _open(fleet: Fleet, cut: _Cut, store: Path) -> dict[System, float]:
    """Start everybody, cut in the same places and on as many threads; the mean size of each one's outputs."""
    fleet.say(f"{cut.case}: starting")
    model, cuts = dict(cut.model), cut.boundaries
    bare = {
        part: {"model": model, "first": cuts[stage], "last": cuts[stage + 1], "threads": cut.threads}
        for stage, part in enumerate(cut.parts(BOUND))
    }
    bare[UNSHARDED] = {"model": model, "first": 0, "last": cuts[-1], "threads": cut.one_threads}
    sizes = {LABKIT: float(fleet.ask(LABKIT, "open", model=model, boundaries=cuts, depth=DEPTH)["size"])}
    loaded = ask_all(fleet, "load", bare)
    sizes |= {UNSHARDED: loaded[UNSHARDED]["size"], BOUND: loaded[cut.parts(BOUND)[-1]]["size"]}
    for torch in TORCHES:
        joined = fleet.attempt(torch, _join, fleet, cut, torch, Path(store, str(TORCHES.index(torch))))
        if joined is not None:
            sizes[torch] = joined
    return sizes


def _join(fleet: Fleet, cut: _Cut, torch: System, store: Path) -> float:
    common = {"model": dict(cut.model), "boundaries": cut.boundaries, "store": str(store), "threads": cut.threads}
    common |= {"microbatches": cut.plan.step_microbatches, "keep_memory": torch == TORCH_KEPT}
    ranks = {part: {**common, "rank": rank} for rank, part in enumerate(cut.parts(torch))}
    return float(ask_all(fleet, "join", ranks)[cut.parts(torch)[-1]]["size"])


def _agree(cut: _Cut, sizes: Mapping[System, float]) -> None:
    """Raise `MeasureError` unless all computed the same."""
    for system, size in sizes.items():
        if not math.isclose(size, sizes[UNSHARDED], rel_tol=SAME):
            raise MeasureError(
                f"{cut.case}: {system} answers with a mean size of {size:.6g}, the model with {sizes[UNSHARDED]:.6g}",
                "They do not run the same model, so nothing can be compared.",
            )


def _time_one_s(fleet: Fleet) -> float:
    """Seconds of a microbatch through the model in one piece: how many of them make a window."""
    fleet.ask(UNSHARDED, "run", microbatches=3)
    return float(fleet.ask(UNSHARDED, "run", microbatches=10)["wall_s"]) / 10


def _rate_per_s(fleet: Fleet, cut: _Cut, system: System, one_s: float) -> float:
    """Microbatches per second of one system, in one window."""
    plan = cut.plan
    if system == LABKIT:
        return float(fleet.ask(LABKIT, "run", seconds=plan.window_s, warmup_s=plan.warmup_s)["per_s"])
    microbatches = max(8, round(plan.window_s / one_s))
    if system == UNSHARDED:
        return microbatches / float(fleet.ask(UNSHARDED, "run", microbatches=microbatches)["wall_s"])
    if system in TORCHES:
        steps = max(1, round(microbatches / plan.step_microbatches))
        answers = cut.ask_parts(fleet, system, "run", steps=steps)
        return steps * plan.step_microbatches / float(answers[-1]["wall_s"])
    walls_s = [float(answer["wall_s"]) for answer in cut.ask_parts(fleet, BOUND, "run", microbatches=microbatches)]
    cut.alone_per_s.append([microbatches / wall_s for wall_s in walls_s])
    return min(microbatches / max(walls_s), 1 / cut.link_s)


def _rows(fleet: Fleet, cut: _Cut) -> list[BenchRow]:
    rows = [_rate_row(fleet, cut, system) for system in WAYS]
    for stage, rates in enumerate(zip(*cut.alone_per_s, strict=True)):
        one = spread(rates)
        rows.append(BenchRow(cut.case, str(BOUND), f"stage {stage} by itself", one.value, one.low, one.high, "1/s"))
    rows.append(BenchRow(cut.case, str(BOUND), "one hop through the ring", 1 / cut.link_s, unit="1/s"))
    for other in (*TORCHES, UNSHARDED, BOUND):
        if cut.per_s[other]:
            found = side_by_side(cut.per_s[LABKIT], cut.per_s[other])
            rows.append(BenchRow(cut.case, "labkit", f"labkit / {other}", found.value, found.low, found.high, "ratio"))
    return rows


def _rate_row(fleet: Fleet, cut: _Cut, system: System) -> BenchRow:
    if not cut.per_s[system]:
        return BenchRow.missing(cut.case, str(system), fleet.failures[system])
    one = spread(cut.per_s[system])
    row = BenchRow(cut.case, str(system), "microbatches", one.value, one.low, one.high, "1/s")
    return replace(row, number_class="bound") if system == BOUND else row


def _checks(cut: _Cut) -> tuple[BenchCheck, ...]:
    return tuple(
        BenchCheck.within(
            f"{cut.case}: throughput, labkit / {other.name}",
            side_by_side(cut.per_s[LABKIT], cut.per_s[other]).value,
            low=goal,
        )
        for other, goal in ((TORCH, TORCH_GOAL), (BOUND, BOUND_GOAL))
    )


def _notes(plan: StagePlan) -> tuple[str, ...]:
    cores = usable_cores()
    shares = ", ".join(f"{count} stages with {max(1, cores // count)} thread(s) each" for count in plan.counts)
    models = "; ".join(map(_described, plan.models))
    return (
        f"Stages: {models}; all systems cut in the same places; {cores} cores: {shares}; the model in one piece has "
        "the same cores. Balancing is off, so that the cuts stay alike. What labkit's controller takes of the stages' "
        "cores is much the same for every microbatch, so it weighs less where a stage takes longer.",
        "labkit's workers keep freed memory (labkit.devices.keep_freed_memory), and so do the bound and the model in "
        "one piece. torch runs as it is, and once more with freed memory kept, which tells the pipeline's part of the "
        "difference from the allocator's.",
        f"torch.distributed.pipelining: forward only, gloo, {plan.step_microbatches} microbatches per step, "
        f"steps back to back, the first not counted. labkit: requests of one microbatch, {DEPTH} per worker on their "
        "way, answers copied out to the sender; its controller runs on the same cores, and torch has none.",
        "The bound is 1 / max(stage, link). Every stage runs in a process of its own; all begin together, each does "
        "the same number of microbatches from memory of its own; the stage that is done last sets the bound. So on "
        "cores that stages have to share, each is slowed by the others as in a pipeline, by the very same work; but "
        "none waits, nothing is copied, and nobody conducts. The link is one hop through the ring with nothing else.",
    )


def _described(model: Mapping[str, Any]) -> str:
    if "name" in model:
        return (
            f"{model['name']}, real weights, cut by labkit's profile, microbatches of {model['rows']} images of noise"
        )
    return (
        f"{model['blocks']} equal blocks (linear layer {model['width']} wide, GELU), microbatches of {model['rows']} "
        f"rows, {_activation_bytes(model) / 1024:.0f} KiB on each edge, cut into equal counts"
    )
