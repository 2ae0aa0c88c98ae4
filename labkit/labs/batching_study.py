"""Which batching policy holds the highest rate within a latency goal, on your model and device.

The study first times the bare model (what batching could give), then finds the rate at which the engine saturates, and
then drives every policy at shares of that rate, open loop. The policies take turns in both directions (A B B A), so
that a machine that drifts favours none. One of them, greedy, also runs against itself: the two must come out equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

import numpy as np

from labkit.batching import Batcher
from labkit.errors import MeasureError, require
from labkit.labs.batching_curve import measure, sizes_up_to
from labkit.labs.policies import NO_BATCHING, POLICIES, policy
from labkit.labs.subject import Subject, subject
from labkit.measure import (
    MeasuredCurve,
    Metrics,
    Percentile,
    Run,
    drive_closed,
    drive_open,
    percentile,
    saturation_rate,
    simulate,
    summarise,
)
from labkit.workloads import Poisson

__all__ = ["CONTROL", "Cell", "Study", "StudySettings", "study"]

CONTROL = "greedy again"
_SHARES = (0.4, 0.65, 0.9)
_CURVE_ROUNDS = 3
_ATTAINED = 0.99


@dataclass(frozen=True, slots=True)
class StudySettings:
    """What to compare. About `seconds` are spent under load, besides loading and warming up."""

    model: str = "minilm"
    device: str = "auto"
    slo_ms: float = 100.0
    seconds: float = 60.0
    cap: int = 16
    wait_ms: float = 10.0
    policies: tuple[str, ...] = (*POLICIES, CONTROL)
    seed: int = 1

    def __post_init__(self) -> None:
        require(self.seconds >= 10, f"seconds is {self.seconds}; a study needs at least 10", "Give 60 or more.")
        require(self.slo_ms > 0, f"slo_ms is {self.slo_ms}; it must be positive", "Give milliseconds.")
        require(bool(self.policies), "policies is empty; a study needs at least one", "Name some, such as 'greedy'.")


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy at one rate: its runs, and the percentile over the requests of all of them."""

    policy: str
    rate_per_s: float
    runs: tuple[Metrics, ...]
    high: Percentile
    median: Percentile

    @property
    def achieved_per_s(self) -> float:
        """Answers per second, mean over the runs."""
        return float(np.mean([run.achieved_per_s for run in self.runs]))

    @property
    def attainment(self) -> float:
        """Share of the offered requests that were answered within the goal."""
        return sum(run.within_slo for run in self.runs) / max(1, sum(run.offered for run in self.runs))

    @property
    def mean_batch(self) -> float:
        """Rows per batch, mean over the runs."""
        return float(np.mean([run.mean_batch for run in self.runs]))

    @property
    def holds(self) -> bool:
        """Whether 99 % of the requests met the goal, in runs that may be used."""
        return self.attainment >= _ATTAINED and not any(run.void for run in self.runs)


@dataclass(frozen=True, slots=True)
class Study:
    """The results. Times in ms, rates per second; `closed_per_s` is what the engine answers at most."""

    settings: StudySettings
    device_name: str
    curve: MeasuredCurve
    bare_per_s: float
    closed_per_s: float
    cells: tuple[Cell, ...]

    def held_per_s(self, name: str) -> float:
        """The highest rate of those tried at which policy `name` held the goal; 0 if none."""
        return max((cell.rate_per_s for cell in self.cells if cell.policy == name and cell.holds), default=0.0)

    @property
    def best(self) -> str:
        """The policy that held the highest rate; of equals, the one with the smallest median there."""
        names = [name for name in self.settings.policies if name != CONTROL]
        return max(names, key=lambda name: (self.held_per_s(name), -self._median_ms(name)))

    def _median_ms(self, name: str) -> float:
        at = self.held_per_s(name)
        found = [cell.median.value_ms for cell in self.cells if cell.policy == name and cell.rate_per_s == at]
        return found[0] if found else math.inf

    def verdict(self) -> str:
        """The one sentence that a hurried reader takes along."""
        goal = f"99 % within {self.settings.slo_ms:g} ms"
        what = f"{self.settings.model} on {self.device_name}"
        held, alone = self.held_per_s(self.best), self.held_per_s(NO_BATCHING)
        if not held:
            return f"{what} does not reach {goal} at any rate that was tried, with any policy."
        answer = f"{what} answers {held:.0f} requests/s with {goal}, by the policy {self.best!r}"
        if NO_BATCHING not in self.settings.policies:
            return f"{answer}."
        if alone:
            return (
                f"{answer}; without batching it answers {alone:.0f}."
                if held > alone
                else f"{answer}; batching adds nothing."
            )
        return f"{answer}; without batching it misses the goal at every rate that was tried."

    def control_ratio(self) -> float:
        """Median latency of greedy against itself, mean over rates (geometric); `nan` if it was not run twice."""
        pairs = [
            (one.median.value_ms, two.median.value_ms)
            for one in self.cells
            for two in self.cells
            if one.policy == "greedy" and two.policy == CONTROL and one.rate_per_s == two.rate_per_s
        ]
        return float(np.exp(np.mean([math.log(two / one) for one, two in pairs]))) if pairs else math.nan

    def modelled_high_ms(self, rate_per_s: float, level: float = 99.0) -> float:
        """What a perfect greedy batcher would show at this rate: the queue simulation on the measured curve."""
        arrivals_s = Poisson(rate_per_s).times(max(20.0, 4000 / rate_per_s), self.settings.seed)
        return simulate(self.curve, arrivals_s, cap=self.settings.cap).percentile_ms(level)


def study(settings: StudySettings, stop: Event | None = None, say: Callable[[str], None] = print) -> Study:
    """Run the whole study; `say` is told of each stage. Raises `MeasureError` if it is stopped half-way."""
    stop = stop or Event()
    subj = subject(settings.model, settings.device)
    say(f"Timing {settings.model} alone on {subj.device_name}")
    curve = _curve(subj, settings, stop)
    with _engine(subj, settings) as engine:
        engine.warmup(subj.workload.payload(0))
        closed_per_s = _closed(engine, subj, settings, stop)
        say(f"The engine answers at most {closed_per_s:.1f} requests/s; the bare model {_bare(curve, settings):.1f}")
        cells = _compare(engine, subj, settings, [share * closed_per_s for share in _SHARES], stop, say)
    return Study(settings, subj.device_name, curve, _bare(curve, settings), closed_per_s, cells)


def _curve(subj: Subject, settings: StudySettings, stop: Event) -> MeasuredCurve:
    sizes = sizes_up_to(settings.cap)
    rounds = list(measure(subj, sizes, _CURVE_ROUNDS, stop))
    _go_on(stop)
    return MeasuredCurve(tuple(sizes), tuple(float(np.median([times[size] for times in rounds])) for size in sizes))


def _bare(curve: MeasuredCurve, settings: StudySettings) -> float:
    return saturation_rate(curve, settings.cap)


def _engine(subj: Subject, settings: StudySettings) -> Batcher:
    return Batcher(
        subj.model.module, prepare=subj.model.prepare, device=subj.device_id, max_rows=settings.cap, name="study"
    )


def _closed(engine: Batcher, subj: Subject, settings: StudySettings, stop: Event) -> float:
    """The rate at which it saturates, with twice the cap in flight."""
    duration_s = max(2.0, settings.seconds / 20)
    run = drive_closed(
        engine, subj.workload, concurrency=2 * settings.cap, duration_s=duration_s, warmup_s=1.0, stop=stop
    )
    _go_on(stop)
    return summarise(run).achieved_per_s


def _compare(
    engine: Batcher,
    subj: Subject,
    settings: StudySettings,
    rates: Sequence[float],
    stop: Event,
    say: Callable[[str], None],
) -> tuple[Cell, ...]:
    plan = [(name, rate) for rate in rates for name in settings.policies]
    duration_s = settings.seconds / (2 * len(plan))
    runs: dict[tuple[str, float], list[Run]] = {key: [] for key in plan}
    for number, key in enumerate((*plan, *reversed(plan))):
        if number % len(settings.policies) == 0:
            say(f"Driving {len(settings.policies)} policies at {key[1]:.1f} requests/s")
        # Each policy meets the same arrivals at a rate; the way back has others.
        seed = settings.seed + (number >= len(plan))
        runs[key].append(_drive(engine, subj, settings, key, duration_s, seed, stop))
        _go_on(stop)
    return tuple(_cell(name, rate, runs[name, rate], settings) for name, rate in plan)


def _drive(
    engine: Batcher,
    subj: Subject,
    settings: StudySettings,
    key: tuple[str, float],
    duration_s: float,
    seed: int,
    stop: Event,
) -> Run:
    name, rate = key
    chosen = "greedy" if name == CONTROL else name
    engine.configure(policy=policy(chosen, cap=settings.cap, wait_ms=settings.wait_ms, slo_ms=settings.slo_ms))
    return drive_open(
        engine,
        Poisson(rate),
        subj.workload,
        duration_s=duration_s,
        seed=seed,
        slo_ms=settings.slo_ms,
        warmup_s=0.2,
        stop=stop,
    )


def _cell(name: str, rate: float, runs: Sequence[Run], settings: StudySettings) -> Cell:
    latencies_ms = [
        row.latency_s * 1000 if row.outcome == "ok" else math.inf for run in runs for row in run.requests
    ] + [math.inf] * sum(run.lost for run in runs)
    metrics = tuple(summarise(run, slo_ms=settings.slo_ms) for run in runs)
    return Cell(name, rate, metrics, percentile(latencies_ms, 99.0), percentile(latencies_ms, 50.0))


def _go_on(stop: Event) -> None:
    if stop.is_set():
        raise MeasureError("the study was stopped half-way", "Run it again to its end.")
