"""A look at a running pipeline; taken while its lock is held."""

from __future__ import annotations

import time

from labkit.sharding.assembly import Parts
from labkit.sharding.health import PipelineSnapshot, StageSnapshot

__all__ = ["look"]


def look(parts: Parts) -> PipelineSnapshot:
    """Say what the pipeline is doing now."""
    tally, crew, waiting = parts.ledger.tally, parts.crew, parts.traffic.waiting
    return PipelineSnapshot(
        open=parts.conductor.open and not crew.failure,
        queued=waiting,
        running=len(parts.ledger) - waiting,
        ok=tally.ok,
        failed=tally.failed,
        rejected=tally.rejected,
        expired=tally.expired,
        cancelled=tally.cancelled,
        notes=tuple(crew.notes),
        health=parts.conductor.health,
        stages=tuple(_stage(parts, stage) for stage in range(len(crew.layout))),
        spares=len(crew.spares),
        epoch=crew.epoch,
        losses=crew.losses,
        moves=crew.moves,
        reason=crew.failure,
    )


def _stage(parts: Parts, stage: int) -> StageSnapshot:
    crew = parts.crew
    layers = crew.layout.layers_of(stage)
    seats = [crew.seats[number] for number in crew.layout.seats[stage]]
    meter = crew.pace.meter
    return StageSnapshot(
        stage=stage,
        first=layers.start,
        last=layers.stop,
        device=seats[0].device,
        workers=len(seats),
        ready=sum(seat.holds(layers) for seat in seats),
        waiting=parts.traffic.waiting_at(stage),
        running=sum(len(seat.hand.jobs) for seat in seats if seat.hand is not None),
        busy=meter.busy(stage, time.perf_counter(), len(seats)),
        step_s=meter.step_s(stage),
        layer_s=crew.pace.layer_s()[layers.start : layers.stop],
        slowdown=seats[0].slowdown,
    )
