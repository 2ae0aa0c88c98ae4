"""Whether cutting a model pays on this machine: rows per second, latency, memory, and what a lost worker costs.

The whole model in one worker is the baseline, with all cores. Each cut runs in as many workers as it has stages, on the
same cores, and so does the cut that most systems would make (equal count). All take turns in both directions; the whole
model also runs against itself, and the two must come out equal. Then workers are killed under load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from threading import Event

from labkit.errors import require
from labkit.labs.pipeline_drive import alone_ms, drive, there_and_back
from labkit.labs.sharding_losses import Losses, lose
from labkit.labs.specimen import Cut, Specimen, specimen
from labkit.measure import Ratio, ratio

__all__ = ["BUSY", "CONTROL", "WHOLE", "Study", "StudySettings", "System", "fastest", "study"]

WHOLE, CONTROL = "whole", "whole again"
# What pairs of runs must differ by to be called different, even when all agree.
_TELLING = 1.03
# From this share of the cores on, other programs decide what is measured here.
BUSY = 0.2


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What to compare: 1 to `stages` stages, microbatches of `rows`; about `seconds` are spent under load."""

    model: str = "efficientnet-lite0"
    device: str = "auto"
    stages: int = 3
    rows: int = 4
    seconds: float = 8.0
    rounds: int = 1
    kills: int = 2

    def __post_init__(self) -> None:
        require(self.stages >= 2, f"stages is {self.stages}; it must be at least 2", "Give 2, 3 or 4.")
        require(self.rows >= 1, f"rows is {self.rows}; it must be at least 1", "Give the rows of a microbatch.")
        require(self.seconds >= 1, f"seconds is {self.seconds}; a study needs at least 1", "Give 8 or more.")
        require(self.rounds >= 1, f"rounds is {self.rounds}; it must be at least 1", "Give a count.")
        require(self.kills >= 1, f"kills is {self.kills}; it must be at least 1", "Give a count.")


@dataclass(frozen=True, slots=True)
class System:
    """One way to run the model: rows per second of each of its runs, and the median ms of one microbatch alone."""

    name: str
    cut: Cut
    rates: tuple[float, ...]
    alone_ms: float

    @property
    def stages(self) -> int:
        """How many workers it has."""
        return len(self.cut.plan)

    @property
    def rows_per_s(self) -> float:
        """Measured rows per second, mean over its runs."""
        return fmean(self.rates)

    @property
    def error(self) -> float:
        """How far the model of it lies from what was measured: 0.1 is 10 % too high."""
        return self.cut.rows_per_s / self.rows_per_s - 1


@dataclass(frozen=True, slots=True)
class Study:
    """The results; `others_share` of the cores was used by other programs while the layers were timed."""

    settings: StudySettings
    device_name: str
    systems: tuple[System, ...]
    losses: Losses
    others_share: float

    def system(self, name: str) -> System:
        """The system of that name."""
        return next(each for each in self.systems if each.name == name)

    @property
    def best(self) -> System:
        """The cut that answered the most rows per second."""
        return fastest(self.systems)

    def gain(self, name: str) -> Ratio:
        """Rows per second of a system over those of the whole model."""
        return ratio(self.system(WHOLE).rates, self.system(name).rates)

    def pairs(self, name: str) -> tuple[float, ...]:
        """The same for each pair of runs."""
        whole = self.system(WHOLE).rates
        return tuple(after / before for before, after in zip(whole, self.system(name).rates, strict=True))

    def pays(self) -> bool | None:
        """Whether the best cut answers more than the whole model in every pair, beyond what the control differs by.

        None when the pairs do not agree, or other programs have kept the machine busy.
        """
        if self.others_share > BUSY:
            return None
        noise = max(max(pair, 1 / pair) for pair in self.pairs(CONTROL))
        gains, telling = self.pairs(self.best.name), max(_TELLING, noise)
        if min(gains) > telling:
            return True
        return False if max(gains) < 1 / telling else None

    def verdict(self) -> str:
        """The one sentence that a hurried reader takes along."""
        best, gain = self.best, self.gain(self.best.name).value
        memory = max(best.cut.plan.memory_bytes) / max(self.system(WHOLE).cut.plan.memory_bytes)
        busy = f"other programs used {100 * self.others_share:.0f} % of the cores"
        why = busy if self.others_share > BUSY else "the runs differ too much"
        found, what = self.pays(), f"cutting {self.settings.model} into {best.stages} stages"
        says = {
            True: f"C{what[1:]} pays on {self.device_name}",
            False: f"C{what[1:]} does not pay on {self.device_name}",
            None: f"Whether {what} pays on {self.device_name} is not clear, because {why}",
        }[found]
        return (
            f"{says}: x{gain:.2f} the rows per second of the whole model on the same cores, "
            f"{100 * memory:.0f} % of its memory in the fullest worker, "
            f"and one microbatch alone takes {best.alone_ms:.0f} ms instead of {self.system(WHOLE).alone_ms:.0f}."
        )


def fastest(systems: Sequence[System]) -> System:
    """Of the cut ones, the system that answers the most rows per second."""
    return max((each for each in systems if each.stages > 1), key=lambda each: each.rows_per_s)


def study(settings: StudySettings, stop: Event | None = None, say: Callable[[str], None] = print) -> Study:
    """Run the whole study; `say` is told of each stage. Raises `MeasureError` if it is stopped half-way."""
    stop = stop or Event()
    found = specimen(settings.model, settings.device, fresh=True)
    say(f"Timing the {len(found.chain)} layers of {settings.model} on {found.subject.device_name}")
    cuts = _cuts(found, settings)
    say(f"Running {len(cuts)} systems in turns, {2 * settings.rounds} times each")
    systems = _compare(found, cuts, settings, stop)
    best = fastest(systems)
    losses = lose(found, best.cut, settings.kills, stop, say)
    return Study(settings, found.subject.device_name, systems, losses, found.others_share)


def _cuts(found: Specimen, settings: StudySettings) -> dict[str, Cut]:
    """The whole, each best cut, and the equal-count cut where it is another one."""
    whole = found.cut(1, settings.rows)
    cuts = {WHOLE: whole}
    for stages in range(2, settings.stages + 1):
        best, equal = (found.cut(stages, settings.rows, by) for by in ("throughput", "equal count"))
        # The best cut may leave a device out, and is then the one that is there already.
        cuts.setdefault(f"{len(best.plan)} stages, best cut", best)
        if equal.plan.boundaries != best.plan.boundaries:
            cuts[f"{stages} stages, equal count"] = equal
    return {**cuts, CONTROL: whole}


def _compare(found: Specimen, cuts: dict[str, Cut], settings: StudySettings, stop: Event) -> tuple[System, ...]:
    seconds = settings.seconds / (2 * settings.rounds * len(cuts))
    alone: dict[str, float] = {}

    def rate(name: str) -> float:
        with found.pipeline(cuts[name], balancing=None) as pipeline:
            if name not in alone:
                alone[name] = alone_ms(found, pipeline, settings.rows)
            return drive(found, pipeline, cuts[name], seconds, stop)

    rates = there_and_back(list(cuts), rate, stop, settings.rounds)
    return tuple(System(name, cut, tuple(rates[name]), alone[name]) for name, cut in cuts.items())
