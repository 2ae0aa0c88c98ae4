"""Case (d): the real models, preprocessing included: with batching, without it, and the bare model as the measure."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from labkit.bench.fleet import Fleet
from labkit.bench.result import BenchCheck, BenchRow, Part
from labkit.bench.rounds import Spread, in_turn, side_by_side, spread
from labkit.bench.sample import TRIES
from labkit.bench.system import REAL_MODELS
from labkit.errors import MeasureError, RunVoid
from labkit.measure import percentile
from labkit.measure.provenance import usable_cores

__all__ = ["ModelPlan", "run"]

SHARE_OF_BARE = 0.95
SHARE_OF_LOAD = 0.8
# How many requests a saturating load keeps in flight, per row of the largest batch: enough to fill every bucket.
IN_FLIGHT_PER_ROW = 4
WITH, WITHOUT = "labkit, batching", "labkit, one by one"
LOAD_LIMIT_S = 900.0


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """Which models, each with the cap of its batches; how long and how often.

    The saturated speeds are taken in many short turns, for a machine's own speed drifts; `rounds` is even: there and
    back. The latencies of all their `latency_rounds` count together.
    """

    caps: tuple[tuple[str, int], ...]
    rounds: int
    saturate_s: float
    latency_rounds: int
    latency_s: float
    warmup_s: float


@dataclass(frozen=True, slots=True)
class _Threads:
    """How the cores are shared out: some for preprocessing, the others for the model, the same for the bare model."""

    prepare: int
    compute: int

    @classmethod
    def of(cls, cores: int) -> _Threads:
        """A quarter for preprocessing, at least one each.

        >>> _Threads.of(2), _Threads.of(16)
        (_Threads(prepare=1, compute=1), _Threads(prepare=4, compute=12))
        """
        prepare = max(1, cores // 4)
        return cls(prepare, max(1, cores - prepare))


@dataclass(frozen=True, slots=True)
class _Speeds:
    """Rows per second in each round, of labkit with batches of at most `max_rows`, and of the bare model on them.

    The bare model runs by itself, and beside threads that preprocess as labkit's do.
    """

    max_rows: int
    per_s: list[float] = field(default_factory=list)
    bare_per_s: list[float] = field(default_factory=list)
    beside_per_s: list[float] = field(default_factory=list)
    mean_batch: list[float] = field(default_factory=list)

    @property
    def share(self) -> Spread:
        """The batcher's speed / that of the bare model by itself, round by round."""
        return side_by_side(self.per_s, self.bare_per_s)

    @property
    def share_beside(self) -> Spread:
        """The bare model's speed beside preprocessing / by itself: what is left of it before there is any batcher."""
        return side_by_side(self.beside_per_s, self.bare_per_s)


def run(fleet: Fleet, plan: ModelPlan) -> Part:
    """Measure one model after the other; one that cannot be loaded is left out and named.

    Raises `MeasureError` if a model was loaded and could not be measured.
    """
    threads = _Threads.of(usable_cores())
    parts = [_model(fleet, plan, name, cap, threads) for name, cap in plan.caps]
    return Part.joined([*parts, Part(notes=_notes(threads))])


def _model(fleet: Fleet, plan: ModelPlan, name: str, cap: int, threads: _Threads) -> Part:
    check = f"{name}: labkit / bare model, saturated"
    ask = partial(fleet.ask, REAL_MODELS)
    try:
        fleet.say(f"{name}: loading")
        ask("load", limit_s=LOAD_LIMIT_S, name=name, threads=threads.compute, prepare_threads=threads.prepare)
    except MeasureError as error:
        missing = BenchRow.missing(name, str(REAL_MODELS), error.problem)
        return Part((missing,), (BenchCheck.within(check, math.nan, low=SHARE_OF_BARE),))
    prepare_ms = float(ask("prepare", seconds=plan.warmup_s)["prepare_ms"])
    speeds = _saturated(fleet, plan, cap, name)
    rate_per_s = SHARE_OF_LOAD * spread(speeds[WITHOUT].per_s).value
    latencies = _latencies(fleet, plan, name, cap, rate_per_s)
    rows = [
        *(row for way in (WITH, WITHOUT) for row in _speed_rows(name, way, speeds[way])),
        _gain(name, speeds),
        *(row for way in (WITH, WITHOUT) for row in _latency_rows(fleet, name, way, latencies[way], rate_per_s)),
        *_prepare_rows(name, prepare_ms, spread(speeds[WITH].bare_per_s).value, threads),
    ]
    return Part(tuple(rows), (BenchCheck.within(check, speeds[WITH].share.value, low=SHARE_OF_BARE),))


def _saturated(fleet: Fleet, plan: ModelPlan, cap: int, name: str) -> dict[str, _Speeds]:
    """Both ways in turn; within each way labkit and the bare model on its batches in turn, there and back."""
    speeds = {WITH: _Speeds(cap), WITHOUT: _Speeds(1)}
    for number in range(plan.rounds):
        for system in in_turn((WITH, WITHOUT), number):
            fleet.say(f"{name}, saturated, round {number + 1} of {plan.rounds}: {system}")
            # Where the bare model goes first, it has the batches of the round before.
            for do in in_turn(("saturate", "bare", "beside"), number):
                _measure_speed(fleet, plan, do, speeds[system], IN_FLIGHT_PER_ROW * cap)
    return speeds


def _measure_speed(fleet: Fleet, plan: ModelPlan, do: str, speeds: _Speeds, in_flight: int) -> None:
    rows, seconds = speeds.max_rows, plan.saturate_s
    if do != "saturate":
        own = speeds.bare_per_s if do == "bare" else speeds.beside_per_s
        own.append(fleet.ask(REAL_MODELS, do, max_rows=rows, seconds=seconds)["per_s"])
        return
    done = fleet.ask(REAL_MODELS, do, max_rows=rows, in_flight=in_flight, seconds=seconds, warmup_s=plan.warmup_s)
    speeds.per_s.append(done["per_s"])
    speeds.mean_batch.append(done["mean_batch"])


def _latencies(fleet: Fleet, plan: ModelPlan, name: str, cap: int, rate_per_s: float) -> dict[str, list[float]]:
    """Latencies by system, of all rounds together, at the same rate and the same arrivals; none if a round was void."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for number in range(plan.latency_rounds):
        for system, rows in in_turn(((WITH, cap), (WITHOUT, 1)), number):
            fleet.say(f"{name}, {rate_per_s:.0f}/s, round {number + 1} of {plan.latency_rounds}: {system}")
            found[system].append(fleet.attempt(REAL_MODELS, _latency, fleet, plan, rows, rate_per_s, number) or [])
    return {system: [ms for own in rounds for ms in own] if all(rounds) else [] for system, rounds in found.items()}


def _latency(fleet: Fleet, plan: ModelPlan, rows: int, rate_per_s: float, seed: int) -> list[float]:
    answer: dict[str, Any] = {}
    for _ in range(TRIES):
        answer = fleet.ask(
            REAL_MODELS,
            "latency",
            max_rows=rows,
            rate_per_s=rate_per_s,
            seconds=plan.latency_s,
            warmup_s=plan.warmup_s,
            seed=seed,
        )
        if not answer["void"]:
            return [math.inf if ms is None else ms for ms in answer["latencies_ms"]]
    raise RunVoid(f"a real model at {rate_per_s:.0f}/s: {answer['void']}", "Close other programs and run it again.")


def _speed_rows(name: str, system: str, speeds: _Speeds) -> list[BenchRow]:
    found = (
        ("saturated", spread(speeds.per_s), "1/s"),
        ("mean batch", spread(speeds.mean_batch), "rows"),
        ("bare model, same batches", spread(speeds.bare_per_s), "1/s"),
        ("share of the bare model", speeds.share, "share"),
        ("bare model beside preprocessing, its own share", speeds.share_beside, "share"),
    )
    return [BenchRow(name, system, metric, one.value, one.low, one.high, unit) for metric, one, unit in found]


def _gain(name: str, speeds: dict[str, _Speeds]) -> BenchRow:
    gain = side_by_side(speeds[WITH].per_s, speeds[WITHOUT].per_s)
    return BenchRow(name, "labkit", "batching / one by one", gain.value, gain.low, gain.high, "ratio")


def _latency_rows(fleet: Fleet, name: str, system: str, latencies_ms: list[float], rate_per_s: float) -> list[BenchRow]:
    if not latencies_ms:
        return [BenchRow.missing(name, system, fleet.failures[REAL_MODELS])]
    return [
        BenchRow(
            name, system, f"{found.label} at {rate_per_s:.3g}/s", found.value_ms, found.low_ms, found.high_ms, "ms"
        )
        for found in (percentile(latencies_ms, level) for level in (50.0, 99.0))
    ]


def _prepare_rows(name: str, prepare_ms: float, bare_per_s: float, threads: _Threads) -> list[BenchRow]:
    """What preprocessing costs, and what it allows at most: it, the model, and the cores are each a limit."""
    compute_ms = 1e3 / bare_per_s
    bound_per_s = min(1e3 * threads.prepare / prepare_ms, bare_per_s)
    return [
        BenchRow(name, "preprocessing", "alone, a request", prepare_ms, unit="ms"),
        BenchRow(name, "preprocessing", "share of the work", prepare_ms / (prepare_ms + compute_ms), unit="share"),
        BenchRow(name, "bound", "preprocessing or bare model", bound_per_s, unit="1/s", number_class="bound"),
    ]


def _notes(threads: _Threads) -> tuple[str, ...]:
    return (
        f"Real models: photos as JPEG bytes, sentences as text, preprocessing included, on {threads.prepare} thread(s) "
        f"of its own; the model, batched and bare alike, on {threads.compute} torch thread(s).",
        "Saturated: a closed loop; rows between the ends of the first and the last batch of the window. The bare "
        "model runs the very batches that labkit formed, ready in memory, back to back; beside preprocessing, threads "
        "preprocess a payload for each row that it takes, which tells what the cores and caches that they share cost "
        "from what the batcher costs.",
        "Latencies: an open loop at 80 % of what labkit reaches one by one, all rounds together; low..high is the 99 % "
        "interval inside the sample, and a percentile is the highest up to p99 that the sample supports.",
    )
