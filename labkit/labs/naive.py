"""The batcher that everybody writes first: collect for a while, stack, run, and hope. The baseline of the fault lab.

It is an honest engine (it batches, it answers, it writes its rows) without any of the care: its queue has no bound, one
bad row fails its whole batch, rows of different shapes fail to stack, and cancelled work is computed all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import torch

from labkit.engine import Snapshot
from labkit.errors import EngineClosed
from labkit.records import Outcome, Recorder, RequestRecord, StepRecord

__all__ = ["NaiveBatcher"]


@dataclass(slots=True)
class _Item:
    number: int
    row: torch.Tensor
    intended_s: float
    arrived_s: float
    future: Future[Any] = field(default_factory=Future)


class NaiveBatcher:
    """Batches of up to `max_rows`, collected for up to `wait_ms` after the first row was taken."""

    def __init__(
        self, model: Callable[[torch.Tensor], torch.Tensor], *, max_rows: int = 32, wait_ms: float = 5.0
    ) -> None:
        self.records = Recorder()
        self._model = model
        self._max_rows = max_rows
        self._wait_s = wait_ms / 1000
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._open = True
        self._sent = self._ended = self._steps = 0
        self._thread = Thread(target=self._loop, name="naive-batcher", daemon=True)
        self._thread.start()

    def submit(
        self, payload: Any, *, intended_s: float | None = None, timeout_s: float | None = None, priority: int = 0
    ) -> Future[Any]:
        """Accept a row; time limits and priorities are ignored."""
        if not self._open:
            raise EngineClosed("the naive batcher is closed", "Make a new one.")
        now_s = time.perf_counter()
        item = _Item(self._sent, payload, now_s if intended_s is None else intended_s, now_s)
        self._sent += 1
        self._queue.put(item)
        return item.future

    def snapshot(self) -> Snapshot:
        """What waits or runs."""
        return Snapshot(open=self._open, queued=self._sent - self._ended, running=0)

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Run what is queued, then stop; without `drain` whatever still waits is left without an answer."""
        self._open = False
        self._queue.put(None)
        self._thread.join(timeout_s if drain else 0.0)

    def _loop(self) -> None:
        while batch := self._collect():
            started_s = time.perf_counter()
            answers, error = self._compute(batch)
            self._answer(batch, answers, error, started_s)

    def _collect(self) -> list[_Item]:
        first = self._queue.get()
        if first is None:
            return []
        batch, until_s = [first], time.perf_counter() + self._wait_s
        while len(batch) < self._max_rows:
            try:
                item = self._queue.get(timeout=max(0.0, until_s - time.perf_counter()))
            except Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            batch.append(item)
        return batch

    def _compute(self, batch: list[_Item]) -> tuple[list[Any], Exception | None]:
        try:
            with torch.inference_mode():
                return list(self._model(torch.stack([item.row for item in batch]))), None
        except Exception as error:
            return [None] * len(batch), error

    def _answer(self, batch: list[_Item], answers: list[Any], error: Exception | None, started_s: float) -> None:
        ended_s = time.perf_counter()
        step = StepRecord(
            self._steps,
            "compute",
            0,
            "cpu",
            started_s,
            ended_s,
            len(batch),
            self._max_rows,
            "failed" if error else "ok",
        )
        self._steps += 1
        self._ended += len(batch)
        self.records.add_steps([step])
        self.records.add_requests([self._row(item, step, error) for item in batch])
        for item, answer in zip(batch, answers, strict=True):
            # It was computed anyway; the one who asked has gone.
            if not item.future.set_running_or_notify_cancel():
                continue
            if error is None:
                item.future.set_result(answer)
            else:
                item.future.set_exception(error)

    def _row(self, item: _Item, step: StepRecord, error: Exception | None) -> RequestRecord:
        outcome: Outcome = "cancelled" if item.future.cancelled() else "failed" if error else "ok"
        return RequestRecord(
            request=item.number,
            intended_s=item.intended_s,
            arrived_s=item.arrived_s,
            ready_s=item.arrived_s,
            started_s=step.started_s,
            finished_s=step.finished_s,
            outcome=outcome,
            step=step.step,
            error=str(error or ""),
        )
