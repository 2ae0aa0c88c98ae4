"""What the staging pool saves, and what overlapping preprocessing with the model gives, measured on real photos.

Three questions, one engine, only its set-up differs:

    memory    rows that are written where the batch is read, against rows that are stacked into a new batch
    freed     memory that the process keeps between layers, against memory that goes back to the system
    overlap   preprocessing in threads of its own beside the model, against one after the other
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

import torch

from labkit.batching import Batcher
from labkit.errors import require
from labkit.labs.freed_memory import measure
from labkit.labs.note import Note
from labkit.labs.point import Point
from labkit.labs.subject import Subject, subject
from labkit.measure import Metrics, drive_closed, summarise

__all__ = ["OverlapSettings", "run"]

_MEMORY = {"stacked": False, "staged": True}
_WARMUP_S = 1.0


@dataclass(frozen=True, slots=True)
class OverlapSettings:
    """Batches of `model` on `device` up to `cap` rows, each case driven for `seconds` in a closed loop."""

    model: str = "efficientnet-lite0"
    device: str = "auto"
    cap: int = 8
    threads: int = 2
    seconds: float = 3.0

    def __post_init__(self) -> None:
        require(self.cap >= 1, f"cap is {self.cap}; it must be at least 1", "Give the rows that one batch may carry.")
        require(self.threads >= 1, f"threads is {self.threads}; it must be at least 1", "Give a count.")
        require(self.seconds > 0, f"seconds is {self.seconds}; it must be positive", "Give seconds per case.")

    @property
    def caps(self) -> tuple[int, ...]:
        """The batches that are compared: of one, half and full."""
        return tuple(sorted({1, max(1, self.cap // 2), self.cap}))


def run(settings: OverlapSettings, stop: Event) -> Iterator[Point | Note]:
    """Yield copied MB, collating time and time per row over the cap, then rate and overlap over preparing threads."""
    yield Note(f"Loading {settings.model}")
    subj = subject(settings.model, settings.device)
    yield from _memory(subj, settings, stop)
    if subj.device_id == "cpu":
        yield from _freed(settings, stop)
    yield from _overlap(subj, settings, stop)


def _memory(subj: Subject, settings: OverlapSettings, stop: Event) -> Iterator[Point | Note]:
    # There and back, so that a machine that slows down slows both.
    order = [(cap, name) for cap in settings.caps for name in _MEMORY]
    for cap, name in order:
        if stop.is_set():
            return
        prepare = subj.model.prepare if _MEMORY[name] else _plain(subj)
        engine = Batcher(subj.model.module, prepare=prepare, device=subj.device_id, max_rows=cap, name="memory")
        metrics, collate_ms, peak_mb = _driven(engine, subj, settings, cap, stop)
        yield Point(f"copied, {name}", cap, metrics.copied_bytes_per_request / 1e6)
        yield Point(f"collating, {name}", cap, collate_ms)
        yield Note(
            f"{name}, batches of up to {cap}: {metrics.copied_bytes_per_request / 1e6:.2f} MB copied per request, "
            f"{collate_ms:.2f} ms to put a batch together, pool at most {peak_mb:.1f} MB"
        )


def _freed(settings: OverlapSettings, stop: Event) -> Iterator[Point | Note]:
    yield Note("Measuring the model in a process of its own, with freed memory given back and kept")
    for runs in measure(settings.model, settings.caps, settings.seconds / 2, stop):
        yield Point(f"memory {runs.case}", runs.rows, runs.batch_ms / runs.rows)
        yield Point(f"faults, memory {runs.case}", runs.rows, runs.faults)
        told = f"{runs.batch_ms:.1f} ms and {runs.faults:.0f} page faults"
        yield Note(f"freed memory {runs.case}, batches of {runs.rows}: {told}")


def _overlap(subj: Subject, settings: OverlapSettings, stop: Event) -> Iterator[Point | Note]:
    for threads in range(settings.threads + 1):
        if stop.is_set():
            return
        engine = _one_after_the_other(subj, settings) if threads == 0 else _beside(subj, settings, threads)
        metrics, _, _ = _driven(engine, subj, settings, settings.cap, stop)
        yield Point("requests per second", threads, metrics.achieved_per_s)
        yield Point("overlap", threads, metrics.overlap_ratio)
        how = f"{threads} preparing threads" if threads else "one after the other"
        yield Note(f"{how}: {metrics.achieved_per_s:.1f} requests/s, overlap {metrics.overlap_ratio:.2f}")


def _plain(subj: Subject) -> Callable[[Any], torch.Tensor]:
    """The same preprocessing, but each row in memory of its own."""
    return lambda payload: subj.model.prepare(payload)


def _beside(subj: Subject, settings: OverlapSettings, threads: int) -> Batcher:
    return Batcher(
        subj.model.module,
        prepare=subj.model.prepare,
        prepare_threads=threads,
        device=subj.device_id,
        max_rows=settings.cap,
        name="overlap",
    )


def _one_after_the_other(subj: Subject, settings: OverlapSettings) -> Batcher:
    """The model prepares its own batch, as a handler without stages does."""

    def model(payloads: list[Any]) -> torch.Tensor:
        rows = torch.stack([subj.model.prepare(payload) for payload in payloads])
        output: torch.Tensor = subj.model.module(rows.to(subj.device_id))
        return output

    return Batcher(model, max_rows=settings.cap, name="serial")


def _driven(
    engine: Batcher, subj: Subject, settings: OverlapSettings, cap: int, stop: Event
) -> tuple[Metrics, float, float]:
    """Metrics, mean ms to put a batch together, and the pool's high-water mark in MB."""
    with engine:
        run = drive_closed(
            engine,
            subj.workload,
            concurrency=3 * cap,
            duration_s=settings.seconds,
            warmup_s=min(_WARMUP_S, settings.seconds),
            stop=stop,
        )
        pool = engine.snapshot().pool
    steps = [step for step in run.steps if step.stage == "compute"]
    collate_ms = 1000 * sum(step.collate_s for step in steps) / max(1, len(steps))
    return summarise(run), collate_ms, (pool.peak_bytes if pool else 0) / 1e6
