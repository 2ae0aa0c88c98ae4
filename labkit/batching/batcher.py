"""The dynamic batcher: merges waiting requests into batches at the moment a worker is free.

    submit -> [prepare threads] -> queue -> a free worker: the policy decides, a batch is taken, runs, is answered

See README.md in this folder for the design, and `labkit.batching.policy` for when a batch is run.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf
from threading import Thread
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar

from labkit.batching.awaited import Awaited
from labkit.batching.collate import Lengths
from labkit.batching.deadlines import Deadlines
from labkit.batching.dispatcher import Dispatcher
from labkit.batching.execution import Execution
from labkit.batching.group import Group
from labkit.batching.intake import Intake, explained
from labkit.batching.ledger import Ledger
from labkit.batching.limits import Limits
from labkit.batching.mailbox import Mailbox
from labkit.batching.placement import place
from labkit.batching.policy import Greedy, Policy
from labkit.batching.pool import PoolSnapshot, StagingPool
from labkit.batching.request import DONE, Request
from labkit.batching.stage import PrepareStage
from labkit.batching.submitted import Submitted
from labkit.batching.worker import Worker
from labkit.engine import Snapshot
from labkit.errors import DeadlineExceeded, EngineClosed, QueueFull, SettingError, WorkerDied, require
from labkit.records import Recorder, StepRecord

__all__ = ["Batcher", "BatcherSnapshot"]

Kind = TypeVar("Kind", bound=Request)

_SLOTS_PER_ROW = 4
_LAST_ANSWERS_S = 1.0
_REMEDY = "Allow more time, lower the load or add a worker."


@dataclass(frozen=True, slots=True)
class BatcherSnapshot(Snapshot):
    """What a batcher is doing now: `busy_workers` of `workers` run batches; `policy` decides; `pool` is its memory."""

    workers: int = 0
    busy_workers: int = 0
    queued_bytes: int = 0
    policy: str = ""
    pool: PoolSnapshot | None = None


class Batcher:
    """Answers single requests by running a model on batches of them.

    `model` maps a batch to one answer per row: tensors `[rows, *row]` where rows are tensors, else a list. `prepare`
    (payload -> row) runs in `prepare_threads` threads of its own. `device` may name several devices, and each carries
    `instances` workers. The other arguments are documented where they live: `policy` in `labkit.batching.policy`, `pad`
    in `Lengths`, `key` and `cost` in `Intake`, all numbers in `Limits`.

    >>> with Batcher(lambda rows: [2 * row for row in rows]) as batcher:
    ...     futures = [batcher.submit(n) for n in range(3)]
    ...     [future.result() for future in futures]
    [0, 2, 4]

    Errors that come through a future: `PrepareFailed`, `ModelFailed`, `OutOfMemory` (each for the guilty item alone),
    `DeadlineExceeded`, `WorkerDied`, `EngineClosed`.
    """

    def __init__(
        self,
        model: Callable[[Any], Any],
        *,
        prepare: Callable[[Any], Any] | None = None,
        policy: Policy | None = None,
        device: str | Sequence[str] = "cpu",
        instances: int = 1,
        prepare_threads: int = 1,
        pad: Lengths | None = None,
        key: Callable[[Any], Hashable] | None = None,
        cost: Callable[[Any], float] | None = None,
        max_rows: int = 32,
        max_cost: float = inf,
        sizes: tuple[int, ...] = (),
        max_queue: int = 1024,
        max_queue_bytes: float = inf,
        ageing_s: float = 1.0,
        timeout_s: float = inf,
        isolate: bool = True,
        name: str = "batcher",
    ) -> None:
        require(prepare_threads >= 1, f"prepare_threads is {prepare_threads}; it must be at least 1", "Give a count.")
        limits = Limits(max_rows, max_cost, sizes, max_queue, max_queue_bytes, ageing_s, timeout_s, isolate)
        self.records = Recorder()
        self._numbers, self._steps = itertools.count(), itertools.count()
        self._replaced = 0
        self._mailbox: Mailbox | None = None
        self._on_cancel = self._cancelled
        self._ledger = Ledger(self.records)
        self._dispatcher = Dispatcher(limits, Greedy() if policy is None else policy, self._ledger)
        self._execution = Execution(self._dispatcher, self._ledger, self.records, self._steps)
        self._deadlines = Deadlines(self._expire, name)
        runners = place(model, device, instances)
        pool = StagingPool(_SLOTS_PER_ROW * max_rows, pinned=any(one.device.startswith("cuda") for one in runners))
        self._intake = Intake(pool, prepare=prepare, pad=pad, key=key, cost=cost, max_cost=max_cost)
        self._stage = PrepareStage(self._prepare, prepare_threads, name) if prepare or pad else None
        self._workers = [
            Worker(number, runner, self._next_batch, self._execution.run, self._worker_lost, name)
            for number, runner in enumerate(runners)
        ]
        for worker in self._workers:
            worker.start()

    def submit(
        self, payload: Any, *, intended_s: float | None = None, timeout_s: float | None = None, priority: int = 0
    ) -> Future[Any]:
        """Accept one row of work; see `Engine.submit`."""
        request = self._arrived(Submitted(self._on_cancel), payload, intended_s, timeout_s, priority)
        self._accept([request])
        return request

    def submit_many(
        self,
        payloads: Sequence[Any],
        *,
        intended_s: float | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
    ) -> Future[list[Any]]:
        """Accept several rows as one request, all or none; its future holds their answers in order.

        There may be more rows than one batch carries. Each row has its own row in the records.
        """
        requests = [
            self._arrived(Submitted(self._on_cancel), payload, intended_s, timeout_s, priority) for payload in payloads
        ]
        self._accept(requests)
        return Group(requests)

    def __call__(self, payload: Any, *, timeout_s: float | None = None, priority: int = 0) -> asyncio.Future[Any]:
        """`await batcher(payload)`: the answer, in a running event loop; cancelling it withdraws the request."""
        loop, mailbox = asyncio.get_running_loop(), self._mailbox
        if mailbox is None or mailbox.loop is not loop:
            # Kept in a name of its own: another thread's loop may replace the attribute at any moment.
            self._mailbox = mailbox = Mailbox(loop, self._on_cancel)
        request = self._arrived(Awaited(loop=loop), payload, None, timeout_s, priority)
        request.mailbox = mailbox
        self._accept([request])
        return request

    def warmup(self, payload: Any, sizes: Sequence[int] | None = None) -> None:
        """Run each batch size once on each worker's device, so that no request pays for a first time.

        `sizes` are by default the allowed sizes or, without those, the powers of two up to the cap and the cap itself.
        Raises what preprocessing and the model raise.
        """
        limits = self._dispatcher.limits
        powers = {2**n for n in range(limits.cap_rows.bit_length())}
        for size in sizes or limits.sizes or sorted(powers | {limits.cap_rows}):
            request = self._arrived(Submitted(self._on_cancel), payload, None, None, 0)
            try:
                self._intake.make(request)
                for worker in self._workers:
                    worker.runner.warmup(request, size)
            finally:
                request.free()

    def configure(self, *, policy: Policy | None = None, **limits: Any) -> None:
        """Change the policy or any field of `Limits` while it runs; what is queued stays queued.

        Raises `SettingError` for a value outside its limits, and changes nothing then.
        """
        before = self._dispatcher.limits
        self._dispatcher.configure(policy, limits)
        now = self._dispatcher.limits
        self._intake.max_cost = now.max_cost
        if now.max_rows > before.max_rows:
            self._intake.pool = self._intake.pool.resized(_SLOTS_PER_ROW * now.max_rows)

    def snapshot(self) -> BatcherSnapshot:
        """What it is doing now."""
        tally, dispatcher = self._ledger.tally, self._dispatcher
        return BatcherSnapshot(
            open=dispatcher.open,
            queued=dispatcher.waiting,
            running=sum(len(worker.batch) + worker.answering.rows for worker in self._workers),
            ok=tally.ok,
            failed=tally.failed,
            rejected=tally.rejected,
            expired=tally.expired,
            cancelled=tally.cancelled,
            notes=tuple(self._notes()),
            workers=len(self._workers),
            busy_workers=sum(bool(worker.batch) for worker in self._workers),
            queued_bytes=dispatcher.waiting_bytes,
            policy=repr(dispatcher.policy),
            pool=self._intake.pool.snapshot(),
        )

    def _notes(self) -> list[str]:
        lowered = self._dispatcher.learned.lowered(self._dispatcher.limits.cap_rows)
        notes = [f"memory ran out: batches of {key} carry at most {cap} rows" for key, cap in lowered.items()]
        notes += [f"the policy raised {error}" for error in [self._dispatcher.policy_error] if error]
        notes += [f"{count} workers died and were replaced" for count in [self._replaced] if count]
        return notes

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Stop; see `Engine.close`. A batch that still runs then is not waited for: its answers are dropped.

        Called from a callback of a future, it returns at once, and the rest happens in a thread of its own.
        """
        self._dispatcher.close()
        if self._ledger.answering_here():
            # This thread may be the one that the others' answers need.
            Thread(target=self.close, kwargs={"drain": drain, "timeout_s": timeout_s}, daemon=True).start()
            return
        finished = drain and self._ledger.wait_empty(timeout_s)
        self._dispatcher.stop()
        self._deadlines.stop()
        if self._stage is not None:
            self._stage.stop()
        self._end(self._ledger.live(), EngineClosed("the batcher was closed", "Submit to an open one."))
        self._ledger.wait_empty(_LAST_ANSWERS_S)
        for worker in self._workers:
            worker.join(1.0 if finished else 0.05)
            worker.answering.stop()

    def __enter__(self) -> Batcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=error is None)

    def _arrived(
        self, request: Kind, payload: Any, intended_s: float | None, timeout_s: float | None, priority: int
    ) -> Kind:
        arrived_s, limits = perf_counter(), self._dispatcher.limits
        limit_s = limits.timeout_s if timeout_s is None else timeout_s
        if not limit_s > 0:
            raise SettingError(f"timeout_s is {limit_s}; it must be positive", "Leave it out for no time limit.")
        # A sum would be one more object in memory, which the worker's core has to fetch.
        number, deadline_s = next(self._numbers), arrived_s + limit_s if limit_s != inf else inf
        request.arrive(number, payload, arrived_s, intended_s, deadline_s, priority, limits.ageing_s)
        return request

    def _accept(self, requests: Sequence[Request]) -> None:
        intake = self._intake
        plain = intake.plain
        try:
            if plain:
                intake.adopt(requests)
            self._dispatcher.admit(requests, ready=plain)
        except QueueFull as error:
            self._ledger.refuse(requests, error)
            raise
        try:
            for request in requests:
                if request.deadline_s != inf:
                    self._deadlines.watch(request)
                if self._stage is not None:
                    self._stage.put(request)
                elif not plain:
                    self._make_ready(request)
        except BaseException:
            # Ctrl-C, say. The sender never gets the future, so nothing may stay behind.
            self._end(requests, EngineClosed("submitting was interrupted", "Submit again."))
            raise

    def _make_ready(self, request: Request) -> bool:
        try:
            self._intake.make(request)
            for worker in self._workers:
                worker.runner.staged(request)
            if not self._dispatcher.push(request):
                request.free()
        except BaseException as error:
            request.free()
            self._end([request], explained(error))
            if not isinstance(error, Exception):
                raise
            return False
        return True

    def _prepare(self, request: Request) -> None:
        """One item of the preparing stage, with its row in the records."""
        begun_s = perf_counter()
        made = self._make_ready(request)
        step = StepRecord(
            step=next(self._steps),
            stage="prepare",
            worker=0,
            device="cpu",
            started_s=begun_s,
            finished_s=perf_counter(),
            rows=1,
            cap=1,
            outcome="ok" if made else "failed",
        )
        self.records.add_steps([step])

    def _next_batch(self, worker: Worker) -> Sequence[Request] | None:
        turn = self._dispatcher.next_turn()
        if turn is None:
            return None
        for request in turn.hopeless:
            request.free()
            self._ledger.fail([request], _late(request, "has passed or cannot be met any more by a batch of one"))
        return turn.batch

    def _end(self, requests: Sequence[Request], error: Exception) -> None:
        for request in requests:
            self._dispatcher.withdraw(request)
        self._ledger.fail(requests, error)

    def _cancelled(self, request: Request) -> None:
        self._dispatcher.withdraw(request)
        self._ledger.withdraw(request)

    def _expire(self, request: Request) -> None:
        self._end([request], _late(request, "passed"))

    def _worker_lost(self, worker: Worker, error: BaseException) -> None:
        batch, worker.batch = worker.batch, ()
        died = WorkerDied(f"the worker died of {type(error).__name__}: {error}", "It was replaced; submit again.")
        self._ledger.fail(batch, died)
        for request in batch:
            request.state = DONE
            request.free()
        if self._dispatcher.running:
            self._replaced += 1
            worker.start()


def _late(request: Request, what: str) -> DeadlineExceeded:
    limit_ms = (request.deadline_s - request.arrived_s) * 1000
    return DeadlineExceeded(f"the request's time limit of {limit_ms:.0f} ms {what}", _REMEDY)
