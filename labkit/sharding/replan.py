"""Where to cut when fewer stages are left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from labkit.sharding.link import Link
from labkit.sharding.partition import partition
from labkit.sharding.plan import Plan
from labkit.sharding.problem import Problem

__all__ = ["Replan", "Survivor", "replan_with"]


@dataclass(frozen=True, slots=True)
class Survivor:
    """A stage that can still run: on which seats, numbered as they were at first, and how much slowed down."""

    stage: int
    seats: tuple[int, ...]
    device: str
    slowdown: float

    @property
    def replicas(self) -> int:
        """How many microbatches it runs at once."""
        return len(self.seats)


# Answers with boundaries, one more than there are survivors; one that is to be left out gets no layers.
Replan = Callable[[tuple[Survivor, ...]], Sequence[int]]


def replan_with(problem: Problem, plan: Plan, cuts: Sequence[int]) -> Replan:
    """Return a `Replan` that cuts for the surviving devices of `problem`, within their memory.

    `cuts` are the layers of `problem` at which the pipeline's own layers begin. What it returns raises `SettingError`
    when the survivors' memory does not suffice, with what is missing.
    """

    def replan(survivors: tuple[Survivor, ...]) -> Sequence[int]:
        left = partition(_only(problem, plan, survivors))
        boundaries = [0]
        for number in range(len(survivors)):
            used = number in left.devices
            boundaries.append(left.boundaries[left.devices.index(number) + 1] if used else boundaries[-1])
        return [cuts.index(boundary) for boundary in boundaries]

    return replan


def _only(problem: Problem, plan: Plan, survivors: tuple[Survivor, ...]) -> Problem:
    """The same problem with the survivors' devices alone, as slow as they are now."""
    devices = [_device(plan, one) for one in survivors]
    factors = [one.slowdown / one.replicas for one in survivors]
    links = problem.links
    if not isinstance(links, Link):
        links = [[links[first][second] for second in devices] for first in devices]
    return replace(
        problem,
        layer_s=problem.layer_s[devices] * [[factor] for factor in factors],
        memory_bytes=problem.memory_bytes[devices],
        devices=tuple(problem.devices[device] for device in devices),
        links=links,
    )


def _device(plan: Plan, survivor: Survivor) -> int:
    """The stage's device; seats that were added later are on the same kind of device as the stage's first."""
    planned = [plan.devices[seat] for seat in survivor.seats if seat < len(plan.devices)]
    return planned[0] if planned else plan.devices[min(survivor.stage, len(plan.devices) - 1)]
