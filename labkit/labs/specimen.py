"""A subject that can be cut, and what every sharding lab does with it: measure its layers, plan, run.

All workers of one machine share it. Stages on the CPU get an equal share of the cores each, and a layer is measured
with as many as it will have; more stages than cores, or several on one accelerator, take turns. That is what
`Cut.period_s` adds to the plan, which takes each device to be there for its stage alone.

Devices of other speeds are emulated: a worker does its work several times over. The numbers are then those of a slower
device, but the machine is as busy as it looks.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import torch

from labkit.devices import attached, find
from labkit.errors import UnknownName, require
from labkit.labs.subject import Subject, subject
from labkit.sharding.baselines import equal_count, parameter_balanced
from labkit.sharding.chain import Chain
from labkit.sharding.link import Link
from labkit.sharding.partition import partition
from labkit.sharding.pipeline import Pipeline
from labkit.sharding.plan import Plan
from labkit.sharding.price import price
from labkit.sharding.problem import Problem
from labkit.sharding.profile import Profile, profile

__all__ = ["CUTS", "Cut", "Specimen", "cores", "slowness", "specimen"]

_BASELINES = {"equal count": equal_count, "equal weights": parameter_balanced}
_OBJECTIVES: tuple[Literal["throughput", "latency", "memory"], ...] = ("throughput", "latency", "memory")

# How a lab may cut a model: the best cut for an objective, or what most systems do.
CUTS = (*_OBJECTIVES, *_BASELINES)

_OTHERS_SHARE = 0.2
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Cut:
    """A model in stages: what was decided, on which measurements, and where each stage runs.

    `places` are the devices by their index in the plan, `slowdowns` how many times slower each of them is made; a
    worker on the CPU has `threads` cores.
    """

    plan: Plan
    problem: Problem
    places: tuple[str, ...]
    slowdowns: tuple[float, ...]
    threads: int

    @property
    def period_s(self) -> float:
        """Seconds between two microbatches (modelled): the longest of stages, links, and devices that are shared."""
        shared: dict[str, float] = defaultdict(float)
        for stage, seconds in enumerate(self.plan.stage_s):
            place = self.places[self.plan.devices[stage]]
            shared[place] += seconds / (max(1, cores() // self.threads) if place == "cpu" else 1)
        return max(self.plan.bottleneck_s, *shared.values())

    @property
    def rows_per_s(self) -> float:
        """Rows per second while the pipeline is full (modelled)."""
        return self.problem.rows / self.period_s

    def slowdowns_of_stages(self) -> tuple[float, ...]:
        """How many times slower the device of each stage is made."""
        return tuple(self.slowdowns[device] for device in self.plan.devices)

    def __str__(self) -> str:
        """How many layers each stage has, such as "4 | 4"."""
        return " | ".join(str(end - start) for start, end in pairwise(self.plan.boundaries))


@dataclass(frozen=True, slots=True)
class Specimen:
    """A subject and its layers; `carrier` is what its pipelines run on. It is measured once, so that cuts compare."""

    subject: Subject
    chain: Chain
    device: str = "auto"
    carrier: Literal["process", "thread"] = "process"
    fresh: bool = False
    _measured: dict[tuple[object, ...], Profile] = field(default_factory=dict, repr=False, compare=False)

    def rows(self, count: int) -> torch.Tensor:
        """A request of so many rows, in the host's memory."""
        return self.subject.batch(count).cpu()

    def profile(self, workers: int, rows: int) -> Profile:
        """Measure each layer for `rows` rows, with the cores that one of so many workers has.

        What an earlier run has measured is used again, unless `fresh` or other programs were at work meanwhile.
        """
        places = tuple(dict.fromkeys(_places(self.device, workers)))
        grounds = (places, rows, _threads(workers))
        if grounds not in self._measured:
            with _torch_threads(_threads(workers)):
                found = profile(self.chain, self.rows(1), places, (rows,), repeats=_REPEATS, remeasure=self.fresh)
                if found.origin.others_share > _OTHERS_SHARE and not self.fresh:
                    found = profile(self.chain, self.rows(1), places, (rows,), repeats=_REPEATS, remeasure=True)
            self._measured[grounds] = found
        return self._measured[grounds]

    @property
    def others_share(self) -> float:
        """The share of the cores that other programs used while the layers were timed; 0 before they were."""
        return max((found.origin.others_share for found in self._measured.values()), default=0.0)

    def cut(
        self,
        stages: int,
        rows: int,
        by: str = "throughput",
        slowdowns: Sequence[float] = (),
        link: Link | None = None,
        workers: int = 0,
    ) -> Cut:
        """Cut for so many devices and microbatches of `rows`; `slowdowns` are the devices' emulated ones.

        A `link` in place of the measured ones is assumed, for planning only. There are as many `workers` as stages,
        unless it is said that more of them share the cores.
        Raises `UnknownName` for a way to cut that is none of `CUTS`, `SettingError` for more stages than layers.
        """
        require(
            1 <= stages <= len(self.chain),
            f"stages is {stages}; {self.subject.model.name} has {len(self.chain)} layers",
            f"Give 1 to {len(self.chain)}.",
        )
        slow = tuple((*slowdowns, *[1.0] * stages)[:stages])
        places = _places(self.device, stages)
        problem = self.profile(workers or stages, rows).problem(places, rows=rows, slowdown=slow, links=link)
        plan = _decided(problem, by)
        if len(plan) < stages and not workers:
            # Fewer workers than were planned for have more cores each.
            problem = self.profile(len(plan), rows).problem(places, rows=rows, slowdown=slow, links=link)
            plan = price(problem, plan.boundaries, plan.devices)
        return Cut(plan, problem, places, slow, _threads(workers or len(plan)))

    def at(self, cut: Cut, boundaries: Sequence[int]) -> Cut:
        """The same with its boundaries elsewhere."""
        return replace(cut, plan=price(cut.problem, boundaries))

    def pipeline(self, cut: Cut, **settings: Any) -> Pipeline:
        """Run it; it has answered a request when this returns. `settings` are those of `Pipeline`."""
        settings.setdefault("microbatch_rows", cut.problem.rows)
        pipeline = Pipeline.plan(
            self.chain,
            cut.plan,
            devices=cut.places,
            slowdowns=cut.slowdowns_of_stages(),
            carrier=self.carrier,
            **settings,
        )
        try:
            pipeline.submit(self.rows(cut.problem.rows)).result(60)
        except BaseException:
            pipeline.close(drain=False)
            raise
        return pipeline


def specimen(model: str, device: str = "auto", *, fresh: bool = False) -> Specimen:
    """Load `model` and read its layers; raises `UnknownName` for it or for the device."""
    found = subject(model, device)
    return Specimen(found, Chain.of(found.model.module), device, fresh=fresh)


def slowness(text: str) -> tuple[float, ...]:
    """Read how many times slower each device is.

    >>> slowness("1 1 2.5")
    (1.0, 1.0, 2.5)
    """
    try:
        found = tuple(float(word) for word in text.replace(",", " ").split())
    except ValueError:
        found = ()
    require(
        bool(found) and min(found) >= 1,
        f"speeds are {text!r}; each must be a number from 1 up",
        "Say how many times slower each device is, such as '1 1 2 1'.",
    )
    return found


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads(workers: int) -> int:
    """Cores of one of so many workers, as a pipeline shares them out."""
    return max(1, cores() // workers)


def _places(device: str, stages: int) -> tuple[str, ...]:
    """Where the stages run: in turns on all accelerators, or all on the one device."""
    if device != "auto":
        return (find(device).id,) * stages
    found = [each.id for each in attached() if each.kind != "cpu"] or ["cpu"]
    return tuple(found[stage % len(found)] for stage in range(stages))


def _decided(problem: Problem, by: str) -> Plan:
    if by in _BASELINES:
        return _BASELINES[by](problem)
    for objective in _OBJECTIVES:
        if by == objective:
            return partition(problem, objective)
    raise UnknownName.among("way to cut", by, CUTS)


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
