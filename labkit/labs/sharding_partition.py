"""Where to cut: what each layer takes, what crosses each cut, what each cut costs, and what the usual rules miss.

Times and bytes are measured; the cost of a cut is computed from them (modelled): the longest of the first stage, the
second stage and the link between them. At the end the best cut and its rivals run as real pipelines, in turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from threading import Event

from labkit.errors import require
from labkit.labs.note import Note
from labkit.labs.pipeline_drive import drive, there_and_back
from labkit.labs.point import Point
from labkit.labs.specimen import Cut, Specimen, specimen
from labkit.sharding.link import Link
from labkit.sharding.price import price

__all__ = ["PartitionSettings", "run"]

# What is compared, and the way to cut that stands behind it.
RULES = {"best cut": "throughput", "equal count": "equal count", "equal weights": "equal weights"}


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """What to cut: `model` on two devices, the second `slower` times slower (emulated), microbatches of `rows`.

    `link_mb_per_s` 0 takes the link as it is; another value is assumed, and then nothing is run. `guess` is the layer
    before which the reader would cut, 0 for none. Up to `stages` devices are compared. A pipeline runs for `seconds`.
    """

    model: str = "efficientnet-lite0"
    device: str = "auto"
    rows: int = 4
    slower: float = 1.0
    link_mb_per_s: float = 0.0
    guess: int = 0
    stages: int = 4
    seconds: float = 1.5

    def __post_init__(self) -> None:
        require(self.rows >= 1, f"rows is {self.rows}; it must be at least 1", "Give the rows of a microbatch.")
        require(self.slower >= 1, f"slower is {self.slower}; it must be at least 1", "Give 1 for equal devices.")
        require(self.link_mb_per_s >= 0, f"link_mb_per_s is {self.link_mb_per_s}", "Give 0 for the measured link.")
        require(self.stages >= 2, f"stages is {self.stages}; it must be at least 2", "Give 2 or more.")
        require(self.seconds >= 0, f"seconds is {self.seconds}; it must be 0 or more", "Give 0 to run nothing.")

    @property
    def link(self) -> Link | None:
        """The link that is assumed, if one is."""
        return Link(1e-4, 1e6 * self.link_mb_per_s) if self.link_mb_per_s else None


def run(settings: PartitionSettings, stop: Event) -> Iterator[Point | Note]:
    """Yield times and bytes over layers, costs over cuts, rows per second over stages, and what running them gave."""
    yield Note(f"Loading {settings.model}")
    found = specimen(settings.model, settings.device)
    yield Note(f"Timing its {len(found.chain)} layers one by one")
    cuts = {name: _cut(found, settings, 2, by) for name, by in RULES.items()}
    yield from _layers(cuts["best cut"])
    yield from _costs(cuts["best cut"])
    yield from _verdict(found, settings, cuts)
    yield from _stages(found, settings, stop)
    if settings.seconds and settings.link is None and not stop.is_set():
        yield from _run(found, cuts, settings, stop)


def _cut(found: Specimen, settings: PartitionSettings, stages: int, by: str) -> Cut:
    slow = [1.0] * (stages - 1) + [settings.slower]
    return found.cut(stages, settings.rows, by, slow, settings.link)


def _layers(cut: Cut) -> Iterator[Point]:
    problem = cut.problem
    for layer, seconds in enumerate(problem.layer_s[0]):
        yield Point("time of the layer", layer, 1000 * float(seconds))
    for place, size in enumerate(problem.cut_bytes):
        yield Point("crosses the cut", place, float(size) / 1000)


def _costs(cut: Cut) -> Iterator[Point]:
    problem = cut.problem
    for place in range(1, len(problem)):
        if problem.allowed[place]:
            plan = price(problem, (0, place, len(problem)))
            yield Point("cost of the cut", place, 1000 * plan.bottleneck_s)
            yield Point("first stage", place, 1000 * plan.stage_s[0])
            yield Point("second stage", place, 1000 * plan.stage_s[1])
            yield Point("link", place, 1000 * plan.link_s[0])


def _verdict(found: Specimen, settings: PartitionSettings, cuts: dict[str, Cut]) -> Iterator[Point | Note]:
    """Mark the cuts that the rules make, and the reader's; `cuts` gains the latter."""
    problem = cuts["best cut"].problem
    if 0 < settings.guess < len(problem):
        cuts["your guess"] = found.at(cuts["best cut"], (0, settings.guess, len(problem)))
    assumed = "; the link is assumed" if settings.link else ""
    for name, cut in cuts.items():
        if len(cut.plan) == 2:
            yield Point(name, cut.plan.boundaries[1], 1000 * cut.plan.bottleneck_s)
        yield Note(
            f"{name}: {cut} layers, {1000 * cut.plan.bottleneck_s:.1f} ms between microbatches "
            f"because of {cut.plan.bottleneck} (modelled{assumed})"
        )


def _stages(found: Specimen, settings: PartitionSettings, stop: Event) -> Iterator[Point | Note]:
    for stages in range(1, min(settings.stages, len(found.chain)) + 1):
        if stop.is_set():
            return
        for name, by in RULES.items():
            cut = _cut(found, settings, stages, by)
            yield Point(f"{name} (modelled)", stages, settings.rows / cut.plan.bottleneck_s)


def _run(found: Specimen, cuts: dict[str, Cut], settings: PartitionSettings, stop: Event) -> Iterator[Point | Note]:
    yield Note(f"Running each cut for {settings.seconds:g} s, there and back")

    def rate(name: str) -> float:
        with found.pipeline(cuts[name], balancing=None) as pipeline:
            return drive(found, pipeline, cuts[name], settings.seconds, stop)

    rivals = [name for name in cuts if name != "equal weights"]
    measured = {name: fmean(rates) for name, rates in there_and_back(rivals, rate, stop).items()}
    for name, got in measured.items():
        hoped = cuts[name].rows_per_s
        yield Point(f"{name} (measured)", len(cuts[name].plan), got)
        yield Note(
            f"{name}: {got:.0f} rows/s measured, {hoped:.0f} modelled for this machine "
            f"({100 * (hoped / got - 1):+.0f} %)"
        )
    best, equal = cuts["best cut"], cuts["equal count"]
    yield Note(
        f"The best cut is {best}; against equal count it should bring x{best.rows_per_s / equal.rows_per_s:.2f} "
        f"(modelled) and brought x{measured['best cut'] / measured['equal count']:.2f} (measured)"
    )
