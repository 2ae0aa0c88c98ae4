"""The same model, load and cores through two schemes: a batcher before the whole model, a pipeline of its stages.

    load      requests of one row, so many in flight: A merges them, B overlaps them, A in front of B does both
    latency   one request alone through 1, 2, 3 stages: the sum of all stages and links, whatever their number
    memory    what the fullest worker has to hold: the reason to cut that no batch takes away

As controls, the pipeline also runs with one stage (its machinery without a cut), and each system runs there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean
from threading import Event
from typing import Any

import torch

from labkit.batching import Batcher
from labkit.engine import Engine
from labkit.errors import require
from labkit.labs.note import Note
from labkit.labs.pipeline_drive import alone_ms, drive, there_and_back
from labkit.labs.point import Point
from labkit.labs.specimen import Specimen, specimen
from labkit.measure import Metrics, drive_closed, summarise
from labkit.sharding.pipeline import Pipeline
from labkit.workloads import Workload

__all__ = ["BATCHER", "BOTH", "PIPELINE", "UNCUT", "VersusSettings", "run"]

BATCHER, PIPELINE, BOTH, UNCUT = "A: batcher", "B: pipeline", "A in front of B", "B with one stage"

_WARMUP_S, _DRAIN_S = 0.15, 2.0
_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class VersusSettings:
    """What to compare: `model` whole behind a batcher of `cap` rows, and cut into `stages`; `seconds` for each case."""

    model: str = "minilm"
    device: str = "auto"
    stages: int = 2
    cap: int = 16
    rows: int = 8
    seconds: float = 0.5

    def __post_init__(self) -> None:
        require(self.stages >= 2, f"stages is {self.stages}; it must be at least 2", "Give 2 or 3.")
        require(self.cap >= 1, f"cap is {self.cap}; it must be at least 1", "Give the rows that one batch may carry.")
        require(self.rows >= 1, f"rows is {self.rows}; it must be at least 1", "Give the rows of the single request.")
        require(self.seconds > 0, f"seconds is {self.seconds}; it must be positive", "Give seconds per case.")


def run(settings: VersusSettings, stop: Event) -> Iterator[Point | Note]:
    """Yield rate and latency of the systems over the requests in flight, then latency, rate and memory over stages."""
    yield Note(f"Loading {settings.model} and measuring its layers")
    found = specimen(settings.model, settings.device)
    yield from _loads(found, settings, stop)
    if not stop.is_set():
        yield from _stages(found, settings, stop)


def _loads(found: Specimen, settings: VersusSettings, stop: Event) -> Iterator[Point | Note]:
    row = found.rows(1)
    payloads = {name: row if name in (PIPELINE, UNCUT) else row[0] for name in (BATCHER, PIPELINE, BOTH, UNCUT)}
    with ExitStack() as stack:
        engines = _engines(found, settings, stack)
        won: dict[int, dict[str, float]] = {}
        for users in sorted({1, max(2, settings.cap // 4), settings.cap}):
            yield Note(f"Requests of one row, {users} in flight: {len(engines)} systems in turns")
            seen: dict[str, list[Metrics]] = {name: [] for name in engines}

            def rate(name: str, users: int = users, seen: dict[str, list[Metrics]] = seen) -> float:
                metrics = _driven(engines[name], payloads[name], users, settings.seconds, stop)
                seen[name].append(metrics)
                return metrics.achieved_per_s

            won[users] = {name: fmean(rates) for name, rates in there_and_back(list(engines), rate, stop).items()}
            for name, value in won[users].items():
                yield Point(name, users, value)
                yield Point(f"{name}, median", users, fmean(each.p50.value_ms for each in seen[name]))
    yield from (Note(_winner(users, rates)) for users, rates in won.items())


def _engines(found: Specimen, settings: VersusSettings, stack: ExitStack) -> dict[str, Engine]:
    """All systems at once; one that has nothing to do costs next to nothing."""
    cut = found.cut(settings.stages, settings.rows)
    pipeline, behind, uncut = (
        stack.enter_context(found.pipeline(each, balancing=None, microbatch_rows=None))
        for each in (cut, cut, found.cut(1, settings.rows))
    )
    subj = found.subject
    whole = Batcher(subj.model.module, device=subj.device_id, max_rows=settings.cap, name="whole")
    # As many batches under way as there are stages, so that each has one.
    front = Batcher(_through(behind), instances=settings.stages, max_rows=settings.cap, name="front")
    engines: dict[str, Engine] = {
        BATCHER: stack.enter_context(whole),
        PIPELINE: pipeline,
        BOTH: stack.enter_context(front),
        UNCUT: uncut,
    }
    whole.warmup(found.rows(1)[0])
    return engines


def _through(pipeline: Pipeline) -> Callable[[torch.Tensor], Any]:
    """The pipeline as a model that a batcher calls."""
    return lambda rows: pipeline.submit(rows).result()


def _driven(engine: Engine, payload: torch.Tensor, users: int, seconds: float, stop: Event) -> Metrics:
    workload = Workload("rows", (payload,))
    return summarise(
        drive_closed(
            engine, workload, concurrency=users, duration_s=seconds, warmup_s=_WARMUP_S, drain_s=_DRAIN_S, stop=stop
        )
    )


def _winner(users: int, rates: dict[str, float]) -> str:
    behind, ahead = sorted((BATCHER, PIPELINE), key=rates.__getitem__)
    ratio = f"x{rates[ahead] / rates[behind]:.2f}" if rates[behind] else "next to none"
    return (
        f"{users} in flight: {ahead} answers {rates[ahead]:.0f} rows/s, {behind} {rates[behind]:.0f} ({ratio}), "
        f"both together {rates[BOTH]:.0f}, one stage {rates[UNCUT]:.0f}"
    )


def _stages(found: Specimen, settings: VersusSettings, stop: Event) -> Iterator[Point | Note]:
    most = min(settings.stages + 1, len(found.chain))
    seen: dict[int, float] = {}
    for stages in range(1, most + 1):
        if stop.is_set():
            return
        yield Note(f"Requests of {settings.rows} rows through {stages} stage{'s' if stages > 1 else ''}")
        cut = found.cut(stages, settings.rows)
        with found.pipeline(cut, balancing=None, microbatch_rows=None) as pipeline:
            yield Point("alone, all cores in use", stages, alone_ms(found, pipeline, settings.rows))
            yield Point("many requests (measured)", stages, drive(found, pipeline, cut, settings.seconds, stop))
        yield Point("many requests (modelled)", stages, cut.rows_per_s)
        yield Point("fullest worker", stages, max(cut.plan.memory_bytes) / 1e6)
        seen[stages], sum_ms = _alike(found, stages, most, settings.rows)
        yield Point("alone, same cores a worker", stages, seen[stages])
        yield Point("sum of stages and links (modelled)", stages, sum_ms)
    yield Note(_said(seen))


def _alike(found: Specimen, stages: int, workers: int, rows: int) -> tuple[float, float]:
    """One request alone where each worker has the cores of one of `workers`: measured, and the sum (ms).

    The first stage gets the workers that are left over. They have nothing to do, but they take their share of cores:
    so that nothing differs but the number of stages.
    """
    cut = found.cut(stages, rows, workers=workers)
    with found.pipeline(cut, balancing=None, microbatch_rows=None) as pipeline:
        pipeline.scale(0, workers - stages + 1).result(60)
        alone_ms(found, pipeline, rows)  # the new workers' first calls
        return alone_ms(found, pipeline, rows), 1000 * cut.plan.latency_s


def _said(seen: dict[int, float]) -> str:
    times = ", ".join(f"{ms:.1f} ms in {stages}" for stages, ms in seen.items())
    shortest = min(seen, key=seen.__getitem__)
    found = (
        "no cut made it shorter"
        if seen[shortest] > (1 - _NOISE) * seen[1]
        else f"it was shorter in {shortest}, which their sum does not explain: was the machine busy?"
    )
    return f"One request alone takes {times} stages, with the same cores for each worker: {found}"
