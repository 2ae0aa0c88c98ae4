"""A way to cut: which layers run where, and what that is expected to give."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from labkit.errors import require

__all__ = ["Plan", "Prediction"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a run of several microbatches is expected to take (class of the numbers: modelled).

    `busy` is the share of the makespan that each stage computes, `bubble` the share of all stages' time that they
    stand idle.
    """

    makespan_s: float
    items_per_s: float
    busy: tuple[float, ...]
    bubble: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Stages in order; stage k holds layers boundaries[k] .. boundaries[k + 1] - 1.

    `devices` are indices into the problem's devices, in stage order: with one replica each, devices[k] runs stage k;
    else `devices_of(k)` are those that do. `stage_s` is the time of one microbatch on the slowest of them, `link_s[k]`
    that from stage k to k + 1. `bottleneck_s` is the time between two results, `latency_s` that of one microbatch from
    end to end: the sum of all. `memory_bytes` is needed on each device of the stage.
    """

    boundaries: tuple[int, ...]
    devices: tuple[int, ...]
    replicas: tuple[int, ...]
    stage_s: tuple[float, ...]
    link_s: tuple[float, ...]
    bottleneck_s: float
    latency_s: float
    memory_bytes: tuple[int, ...]

    def __len__(self) -> int:
        """Number of stages."""
        return len(self.replicas)

    def layers_of(self, stage: int) -> range:
        """The layers of a stage."""
        return range(self.boundaries[stage], self.boundaries[stage + 1])

    def devices_of(self, stage: int) -> tuple[int, ...]:
        """The devices of a stage, one for each of its replicas."""
        ends = list(accumulate(self.replicas))
        return self.devices[ends[stage] - self.replicas[stage] : ends[stage]]

    @property
    def period_s(self) -> tuple[float, ...]:
        """Time between two results of each stage, its replicas taking turns."""
        return tuple(seconds / replicas for seconds, replicas in zip(self.stage_s, self.replicas, strict=True))

    @property
    def bottleneck(self) -> str:
        """What sets the pace: "stage 1", or "link 0-1".

        >>> Plan((0, 1, 2), (0, 1), (1, 1), (1.0, 1.0), (3.0,), 3.0, 5.0, (0, 0)).bottleneck
        'link 0-1'
        """
        stage = max(range(len(self)), key=self.period_s.__getitem__)
        if self.period_s[stage] >= max(self.link_s, default=0.0):
            return f"stage {stage}"
        link = max(range(len(self.link_s)), key=self.link_s.__getitem__)
        return f"link {link}-{link + 1}"

    def predict(self, items: int, microbatches: int) -> Prediction:
        """Predict a run of `items` in so many microbatches of the size that the problem was measured for.

        The makespan is sum(stages) + sum(links) + (microbatches - 1) * longest: the first microbatch passes all, and
        the others leave one by one at the pace of the slowest stage or link. With replicas it is an upper bound.

        >>> Plan((0, 1, 2), (0, 1), (1, 1), (1.0, 2.0), (0.5,), 2.0, 3.5, (0, 0)).predict(16, 4).makespan_s
        9.5
        """
        require(
            items >= microbatches >= 1,
            f"{items} items in {microbatches} microbatches",
            "Give at least one microbatch, and at least one item for each.",
        )
        makespan_s = self.latency_s + (microbatches - 1) * self.bottleneck_s
        if makespan_s == 0:
            return Prediction(0.0, float("inf"), (0.0,) * len(self), 0.0)
        busy = tuple(microbatches * period_s / makespan_s for period_s in self.period_s)
        idle = 1 - sum(share * replicas for share, replicas in zip(busy, self.replicas, strict=True)) / len(
            self.devices
        )
        return Prediction(makespan_s, items / makespan_s, busy, idle)
