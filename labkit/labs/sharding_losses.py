"""What losing a worker costs: kill or hang one under load, and watch until its stage works again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Literal

from labkit.errors import MeasureError
from labkit.labs.pipeline_drive import in_flight
from labkit.labs.pipeline_load import Load, PipelineLoad
from labkit.labs.specimen import Cut, Specimen
from labkit.labs.standstill import longest_gap_ms, standstill
from labkit.sharding.health import Health, PipelineSnapshot
from labkit.sharding.pipeline import Pipeline

__all__ = ["Loss", "Losses", "lose"]

_CALM_S = 0.8
_LOOK_S = 0.001
_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Loss:
    """One lost worker: noticed and replaced so many ms after the fault; `gap_ms` is the longest wait for a result."""

    fault: Literal["kill", "hang"]
    stage: int
    noticed_ms: float
    replaced_ms: float
    gap_ms: float


@dataclass(frozen=True, slots=True)
class Losses:
    """All losses of a run; `calm_gap_ms` is the longest wait before the first, `failed` of `answered` got an error."""

    each: tuple[Loss, ...]
    calm_gap_ms: float
    answered: int
    failed: int


def lose(found: Specimen, cut: Cut, kills: int, stop: Event, say: Callable[[str], None] = print) -> Losses:
    """Kill each stage in turns, `kills` times in all, then let one hang; with one warm spare, in a closed loop.

    Raises `MeasureError` if a stage does not come back, or when it is stopped half-way.
    """
    stages = len(cut.plan)
    with found.pipeline(cut, spares=1, balancing=None) as pipeline:
        with PipelineLoad(pipeline, found.rows, Load(rows=cut.problem.rows, in_flight=in_flight(stages))):
            _pass(_CALM_S, stop)
            cursor = pipeline.records.steps_since(0)[1]
            _pass(_CALM_S, stop)
            calm_ms = longest_gap_ms(pipeline.records.steps_since(cursor)[0], stages - 1)
            say(f"Killing {kills} workers and letting one hang, under load")
            losses = [_lose(pipeline, "kill", number % stages, stop) for number in range(kills)]
            losses.append(_lose(pipeline, "hang", stages - 1, stop))
        snapshot = pipeline.snapshot()
    return Losses(tuple(losses), calm_ms, snapshot.ok, snapshot.failed)


def _lose(pipeline: Pipeline, fault: Literal["kill", "hang"], stage: int, stop: Event) -> Loss:
    before = pipeline.snapshot()
    at_s = time.perf_counter()
    pipeline.inject(stage, fault)
    noticed_ms = _until(pipeline, lambda now: now.losses > before.losses, at_s, stop)
    replaced_ms = _until(pipeline, lambda now: now.health is Health.RUNNING, at_s, stop)
    until_s = time.perf_counter() + _LIMIT_S
    while time.perf_counter() < until_s:
        _pass(_CALM_S, stop)
        found = standstill(pipeline.records.steps(), stage, len(before.stages) - 1, at_s)
        if found is not None:
            return Loss(fault, stage, noticed_ms, replaced_ms, found.gap_ms)
    raise MeasureError(f"stage {stage} did nothing for {_LIMIT_S:g} s after its {fault}", "Look at its snapshot.")


def _until(pipeline: Pipeline, holds: Callable[[PipelineSnapshot], bool], at_s: float, stop: Event) -> float:
    """Milliseconds from the fault until it holds, looked up once a millisecond."""
    while not holds(pipeline.snapshot()):
        if time.perf_counter() > at_s + _LIMIT_S:
            raise MeasureError(f"the pipeline took no notice for {_LIMIT_S:g} s", "Look at its snapshot.")
        _pass(_LOOK_S, stop)
    return 1000 * (time.perf_counter() - at_s)


def _pass(seconds: float, stop: Event) -> None:
    if stop.wait(seconds):
        raise MeasureError("the measurement was stopped half-way", "Run it again to its end.")
