"""What a pipeline says about itself, at once and truthfully."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from labkit.engine import Snapshot

__all__ = ["Health", "PipelineSnapshot", "StageSnapshot"]


class Health(Enum):
    """RUNNING: every stage has its workers. RECOVERING: one is being replaced. FAILED: a stage has nobody left."""

    RUNNING = "running"
    RECOVERING = "recovering"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class StageSnapshot:
    """One stage: its layers `first` to `last` - 1, and what its workers do.

    `busy` is the share of the last seconds that its workers computed, `step_s` the mean time of a step, `layer_s` that
    of each layer, `waiting` the microbatches that it could take now. `device` is named with its slowdown where other
    devices' speeds are emulated.
    """

    stage: int
    first: int
    last: int
    device: str
    workers: int
    ready: int
    waiting: int
    running: int
    busy: float
    step_s: float
    layer_s: tuple[float, ...]
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True)
class PipelineSnapshot(Snapshot):
    """What a pipeline is doing now. `losses` counts lost workers, `moves` re-balancings, `epoch` any change of crew."""

    health: Health = Health.RUNNING
    stages: tuple[StageSnapshot, ...] = ()
    spares: int = 0
    epoch: int = 0
    losses: int = 0
    moves: int = 0
    reason: str = ""

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Where the model is cut now."""
        return (0, *(stage.last for stage in self.stages))

    @property
    def bottleneck(self) -> int | None:
        """The stage that sets the pace: the one with the most seconds per step and worker; None before any step."""
        timed = [stage for stage in self.stages if stage.step_s > 0]
        if not timed:
            return None
        return max(timed, key=lambda stage: stage.step_s / max(1, stage.workers)).stage
