"""A real model behind labkit's batcher, and the same model bare. Nothing here sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any

import torch

from labkit.batching import Batcher
from labkit.devices import keep_freed_memory
from labkit.measure import Run, drive_closed, drive_open
from labkit.models import load
from labkit.records import StepRecord
from labkit.workloads import Poisson, photos, sentences

from .protocol import serve

__all__ = ["main"]

# With fewer, a run on a slow machine is repeated for twice as long.
ENOUGH_BATCHES = 4
WORKLOADS = {"efficientnet-lite0": photos, "minilm": sentences}


def main() -> None:
    """Answer the bench's requests about one model."""
    bench = _Bench()
    serve(
        {
            "load": bench.load,
            "prepare": bench.prepare,
            "saturate": bench.saturate,
            "bare": bench.bare,
            "beside": bench.beside,
            "latency": bench.latency,
        }
    )


class _Remembering:
    """The model, with the shapes of the batches that it was given, and a batch of each kind to run again."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.runs: list[tuple[float, torch.Size]] = []
        self.largest: dict[torch.Size, torch.Tensor] = {}

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        self.runs.append((time.perf_counter(), batch.shape))
        known = self.largest.get(batch.shape[1:])
        if known is None or len(known) < len(batch):
            self.largest[batch.shape[1:]] = batch.clone()
        output: torch.Tensor = self.module(batch)
        return output

    def ready(self, shape: torch.Size) -> torch.Tensor:
        """A batch of that shape, in memory."""
        return self.largest[shape[1:]][: shape[0]]


class _Bench:
    def load(self, name: str, threads: int, prepare_threads: int) -> dict[str, Any]:
        """Load the model and its workload; the model may use `threads` threads, here and bare."""
        torch.set_num_threads(threads)
        # The batcher does so; from the start, the bare model has it too.
        keep_freed_memory()
        self.model = load(name)
        self.workload = WORKLOADS[name]()
        self.prepare_threads = prepare_threads
        self.batches: dict[int, tuple[_Remembering, list[torch.Size]]] = {}
        return {}

    def prepare(self, seconds: float) -> dict[str, Any]:
        """Milliseconds of preprocessing per request, one thread, nothing else running."""
        for index in range(len(self.workload)):
            self.model.prepare(self.workload.payload(index))
        begun_s, done = time.perf_counter(), 0
        # Whole rounds of the workload, for payloads differ.
        while time.perf_counter() - begun_s < seconds:
            for index in range(len(self.workload)):
                self.model.prepare(self.workload.payload(index))
            done += len(self.workload)
        return {"prepare_ms": (time.perf_counter() - begun_s) * 1e3 / done}

    def saturate(self, max_rows: int, in_flight: int, seconds: float, warmup_s: float) -> dict[str, Any]:
        """Requests per second with `in_flight` requests at any time, preprocessing included."""
        model = _Remembering(self.model.module)
        with self._batcher(model, max_rows, in_flight) as batcher:
            run = drive_closed(batcher, self.workload, concurrency=in_flight, duration_s=seconds, warmup_s=warmup_s)
        steps = _batches(run.valid_or_raise())
        if len(steps) < ENOUGH_BATCHES:
            return self.saturate(max_rows, in_flight, 2 * seconds, warmup_s)
        # The very batches that the throughput counts.
        begin_s, end_s = steps[0].finished_s, steps[-1].finished_s
        self.batches[max_rows] = (model, [shape for at_s, shape in model.runs if begin_s <= at_s < end_s])
        return _throughput(steps)

    def bare(self, max_rows: int, seconds: float) -> dict[str, Any]:
        """Rows per second of the model in a loop over the batches that `saturate` last formed, ready in memory."""
        return self._bare(max_rows, seconds, lambda rows: None)

    def beside(self, max_rows: int, seconds: float) -> dict[str, Any]:
        """The same while threads preprocess as many payloads as the model takes rows: no batcher, but its work."""
        payloads = map(self.workload.payload, cycle(range(len(self.workload))))
        with ThreadPoolExecutor(self.prepare_threads) as pool:

            def prepare(rows: int) -> None:
                for payload in islice(payloads, rows):
                    pool.submit(self.model.prepare, payload)

            return self._bare(max_rows, seconds, prepare)

    def _bare(self, max_rows: int, seconds: float, meanwhile: Callable[[int], object]) -> dict[str, Any]:
        """`meanwhile` is told the rows of each batch before it runs."""
        model, shapes = self.batches[max_rows]
        rows = 0
        with torch.inference_mode():
            model.module(model.ready(shapes[0]))
            begun_s = time.perf_counter()
            # Whole rounds, for batches of one shape take longer than those of another.
            while time.perf_counter() - begun_s < seconds:
                for shape in shapes:
                    meanwhile(shape[0])
                    model.module(model.ready(shape))
                    rows += shape[0]
            return {"per_s": rows / (time.perf_counter() - begun_s)}

    def latency(self, max_rows: int, rate_per_s: float, seconds: float, warmup_s: float, seed: int) -> dict[str, Any]:
        """Latencies under an open load, preprocessing included; a run whose generator was late says why it is void."""
        with self._batcher(self.model.module, max_rows, 4096) as batcher:
            run = drive_open(
                batcher, Poisson(rate_per_s), self.workload, duration_s=seconds, warmup_s=warmup_s, seed=seed
            )
        latencies_ms = [row.latency_s * 1e3 if row.outcome == "ok" else None for row in run.requests]
        return {"latencies_ms": latencies_ms + [None] * run.lost, "void": run.void}

    def _batcher(self, model: Any, max_rows: int, max_queue: int) -> Batcher:
        return Batcher(
            model,
            prepare=self.model.prepare,
            prepare_threads=self.prepare_threads,
            max_rows=max_rows,
            max_queue=max_queue,
        )


def _batches(run: Run) -> list[StepRecord]:
    return sorted((step for step in run.steps if step.stage == "compute"), key=lambda step: step.finished_s)


def _throughput(steps: list[StepRecord]) -> dict[str, Any]:
    """Rows per second between the ends of the first and the last batch, so that no batch is cut by the window."""
    rows = [step.rows for step in steps]
    return {
        "per_s": sum(rows[1:]) / (steps[-1].finished_s - steps[0].finished_s),
        "mean_batch": sum(rows) / len(rows),
    }
