"""What a worker does with a batch: run it, take it apart if it fails, record each run, learn from it, answer it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from labkit.batching.dispatcher import Dispatcher
from labkit.batching.faults import is_out_of_memory, run_apart
from labkit.batching.ledger import Ledger
from labkit.batching.request import DONE, Request
from labkit.batching.runner import Executed
from labkit.batching.worker import Worker
from labkit.records import Recorder, StepOutcome, StepRecord

__all__ = ["Execution"]

# Handing answers to another thread costs about as much as giving those of a few rows.
_WORTH_S = 0.002


class Execution:
    """Runs batches for all workers of one batcher; `steps` numbers them."""

    def __init__(self, dispatcher: Dispatcher, ledger: Ledger, recorder: Recorder, steps: Iterator[int]) -> None:
        self._dispatcher = dispatcher
        self._ledger = ledger
        self._recorder = recorder
        self._steps = steps

    def run(self, worker: Worker, requests: Sequence[Request]) -> None:
        """Answer every request of a batch, with its output or with its own error."""
        key = requests[0].key
        parts = run_apart(
            requests,
            lambda part: self._step(worker, part),
            isolate=self._dispatcher.limits.isolate,
            on_out_of_memory=lambda rows: self._dispatcher.out_of_memory(key, rows),
        )
        for part, outputs in parts:
            answer = partial(self._answer, part, outputs)
            if worker.answering.rows or self._goes_on(part):
                worker.answering.hand(answer, len(part))
            else:
                answer()

    def _goes_on(self, requests: Sequence[Request]) -> bool:
        """Whether a next batch waits, and takes long enough to answer these meanwhile."""
        return self._dispatcher.queued_rows > 0 and time.perf_counter() - requests[0].started_s > _WORTH_S

    def _answer(self, requests: Sequence[Request], outputs: Sequence[Any]) -> None:
        self._ledger.answer(requests, outputs)
        for request in requests:
            request.state = DONE
            request.free()

    def _step(self, worker: Worker, requests: Sequence[Request]) -> list[Any]:
        size = self._dispatcher.limits.size_for(len(requests))
        step, begun_s = next(self._steps), time.perf_counter()
        for request in requests:
            request.step, request.started_s = step, begun_s
        try:
            executed = worker.runner.run(requests, size)
        except Exception as error:
            outcome: StepOutcome = "out_of_memory" if is_out_of_memory(error) else "failed"
            self._record(worker, requests, size, step, begun_s, outcome, Executed([], 0.0, 0))
            raise
        duration_s = self._record(worker, requests, size, step, begun_s, "ok", executed)
        self._dispatcher.learn(requests[0].key, len(requests), size, duration_s)
        return executed.outputs

    def _record(
        self,
        worker: Worker,
        requests: Sequence[Request],
        size: int,
        step: int,
        begun_s: float,
        outcome: StepOutcome,
        executed: Executed,
    ) -> float:
        """Write the row of one run, and return its duration in seconds."""
        ended_s, rows = time.perf_counter(), len(requests)
        if executed.copied_bytes:
            for request in requests:
                request.copied_bytes += executed.copied_bytes // rows
        row = StepRecord(
            step=step,
            stage="compute",
            worker=worker.number,
            device=worker.runner.device,
            started_s=begun_s,
            finished_s=ended_s,
            rows=rows,
            cap=self._dispatcher.limits.cap_rows,
            outcome=outcome,
            padded_rows=size - rows,
            queued_rows=self._dispatcher.queued_rows,
            real_units=sum([request.real_units for request in requests]),
            computed_units=size * requests[0].computed_units,
            copied_bytes=executed.copied_bytes,
            collate_s=executed.collate_s,
        )
        self._recorder.add_steps([row])
        return ended_s - begun_s
