"""A model in stages, on several devices at once: the engine that its users hold."""

from __future__ import annotations

import atexit
import math
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count, pairwise
from types import TracebackType
from typing import Any, Literal

import torch

from labkit.errors import EngineClosed, QueueFull, require, require_known
from labkit.records import Recorder
from labkit.sharding.assembly import Wishes, assemble
from labkit.sharding.balance import Balancing
from labkit.sharding.carrier import patience_for
from labkit.sharding.chain import Chain
from labkit.sharding.cluster import Cluster
from labkit.sharding.conductor import Conductor
from labkit.sharding.health import PipelineSnapshot
from labkit.sharding.job import Forget
from labkit.sharding.layout import first_layout
from labkit.sharding.onnx_graph import OnnxChain
from labkit.sharding.patience import Patience
from labkit.sharding.plan import Plan
from labkit.sharding.problem import Problem
from labkit.sharding.recovery import Budget
from labkit.sharding.replan import Replan, replan_with
from labkit.sharding.request import Request
from labkit.sharding.sequence import Sequence as StepSequence
from labkit.sharding.sequence import SequenceState
from labkit.sharding.settings import Settings
from labkit.sharding.state import Stateful
from labkit.sharding.view import look

__all__ = ["Pipeline"]

Fault = Literal["kill", "hang", "slow"]
Stage = Callable[[Any], Any] | Stateful
Dtype = torch.dtype | str | None

_BALANCING = Balancing()

_open: weakref.WeakSet[Conductor] = weakref.WeakSet()


class Pipeline:
    """Runs a model's stages as a pipeline; an `Engine`.

    A stage takes one value and returns one; a value is a tensor, or tensors, arrays, None and plain values in nested
    tuples, lists and dicts, and may differ in shape from one request to the next. A request's payload is cut along its
    leading axis into microbatches of `microbatch_rows` (the last may be short), which are in different stages at the
    same time; the outputs are joined again, in order, and are the caller's to keep.

    `carrier` is "process" (worker processes from a fork server, shared memory between them), "thread", or "ray" (actors
    on the hosts of a Ray cluster; a `Cluster` says which). Each stage runs on its entry of `devices` (default: all on
    the CPU) with its entry of `replicas` as many workers, in its entry of `dtypes`: weights are cast once, values where
    they arrive. `slowdowns` make a stage's device seem slower by doing the work several times over. When a worker is
    lost, a spare or a new one takes its place and its microbatches are run again, so stages must not have side effects;
    where no worker can be had, the model is cut anew for the stages that are left, at `replan(survivors)` (default: the
    best cut by the times measured so far).

    `boundaries` makes runs of layers of the `stages`: (0, 2, 5) makes two pipeline stages of five layers, whose
    boundary can move.

    Raises `SettingError` for settings that make no pipeline, `ModelFailed` if a stage cannot be loaded. The future of
    a request gives `ModelFailed`, `OutOfMemory`, `WorkerDied` (a microbatch that kills its workers), `DeadlineExceeded`
    or `EngineClosed`; the pipeline goes on.

    >>> with Pipeline([torch.nn.Linear(4, 8), torch.relu], carrier="thread", microbatch_rows=2) as pipeline:
    ...     pipeline.submit(torch.ones(7, 4)).result().shape
    torch.Size([7, 8])
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        carrier: Literal["process", "thread", "ray"] | Cluster = "process",
        boundaries: Sequence[int] | None = None,
        devices: Sequence[str] | None = None,
        dtypes: Sequence[Dtype] | None = None,
        replicas: Sequence[int] | int = 1,
        slowdowns: Sequence[float] | None = None,
        microbatch_rows: int | None = None,
        max_queue: int = 1024,
        depth: int = 2,
        spares: int = 0,
        timeout_s: float = math.inf,
        patience: Patience | None = None,
        budget: Budget | None = None,
        balancing: Balancing | None = _BALANCING,
        layer_s: Sequence[float] | None = None,
        replan: Replan | None = None,
        name: str = "pipeline",
    ) -> None:
        patience = patience or patience_for(carrier)
        self._settings = Settings(
            microbatch_rows, max_queue, depth, timeout_s, spares, patience, budget or Budget(), balancing
        )
        self.records = Recorder()
        self._numbers, self._sequence_numbers = count(), count()
        layout = first_layout(len(stages), boundaries, replicas)
        wishes = Wishes(carrier, devices, dtypes, slowdowns, layer_s, replan)
        self._parts = assemble(stages, layout, wishes, self._settings, self.records, name)
        self._conductor, self._crew = self._parts.conductor, self._parts.crew
        self._conductor.start([*self._crew.seats, *[None] * spares])
        _open.add(self._conductor)
        # A pipeline that nobody holds any more ends by itself.
        weakref.finalize(self, self._conductor.abandon).atexit = False

    @classmethod
    def plan(
        cls,
        chain: Chain,
        plan: Plan,
        *,
        devices: Sequence[str] | None = None,
        problem: Problem | None = None,
        **settings: Any,
    ) -> Pipeline:
        """Run `chain` as `plan` says: its boundaries and replicas, on `devices[index]` for each index in the plan.

        With the `problem` that the plan solves, its costs and memory caps also decide where to cut after a loss.
        `settings` are those of `Pipeline`. Layers between which the chain may not be cut stay together for good, and so
        do those of an ONNX stage, since ONNX Runtime fuses across them.
        """
        if isinstance(chain, OnnxChain):
            cuts: Sequence[int] = plan.boundaries
            runs = [chain.stage(first, last) for first, last in pairwise(cuts)]
        else:
            cuts = [cut for cut in range(len(chain) + 1) if chain.cut_allowed(cut)]
            runs = [_together(chain.layers[first:last]) for first, last in pairwise(cuts)]
        places = devices or ["cpu"] * (max(plan.devices) + 1)
        if problem is not None:
            settings.setdefault("replan", replan_with(problem, plan, cuts))
        return cls(
            runs,
            boundaries=[cuts.index(cut) for cut in plan.boundaries],
            devices=[places[plan.devices_of(stage)[0]] for stage in range(len(plan))],
            replicas=plan.replicas,
            **settings,
        )

    def submit(
        self, payload: Any, *, intended_s: float | None = None, timeout_s: float | None = None, priority: int = 0
    ) -> Future[Any]:
        """Accept a batch of rows; see `Engine.submit`. Raises `SettingError` if its tensors disagree about rows."""
        return self._submit(payload, intended_s=intended_s, timeout_s=timeout_s, priority=priority)

    def sequence(self) -> StepSequence:
        """Begin a sequence of steps that share the state of `Stateful` stages."""
        return StepSequence(SequenceState(next(self._sequence_numbers)), self._submit, self._end_sequence)

    def snapshot(self) -> PipelineSnapshot:
        """What it is doing now, true to within a second."""
        with self._conductor.entered():
            return look(self._parts)

    def scale(self, stage: int, replicas: int) -> Future[None]:
        """Give `stage` another number of workers while it runs; the future is done when they serve."""
        self._check_stage(stage)
        require(replicas >= 1, f"replicas is {replicas}; it must be at least 1", "Give a count.")
        with self._conductor.entered():
            return self._crew.scale(stage, replicas)

    def inject(self, stage: int, fault: Fault, *, factor: float = 2.0) -> None:
        """Do something bad to a stage, for tests and labs: kill or hang one of its workers, or slow its device down.

        "slow" does the work `factor` times over from now on; 1.0 ends it. Workers that replace it inherit it.
        """
        self._check_stage(stage)
        require_known("fault", fault, ("kill", "hang", "slow"))
        require(factor >= 1, f"factor is {factor}; it must be at least 1", "A device cannot be made faster.")
        with self._conductor.entered():
            if fault == "slow":
                self._crew.slow(stage, factor)
                return
            seats = [self._crew.seats[number] for number in self._crew.layout.seats[stage]]
            hand = next((seat.hand for seat in seats if seat.hand is not None), None)
            if hand is not None:
                hand.remote.die() if fault == "kill" else hand.remote.hang()

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Stop; see `Engine.close`. No process, thread, memory or descriptor stays behind."""
        self._conductor.close(drain=drain, timeout_s=timeout_s)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=error is None)

    def _submit(
        self,
        payload: Any,
        *,
        intended_s: float | None,
        timeout_s: float | None,
        priority: int,
        sequence: SequenceState | None = None,
    ) -> Future[Any]:
        limit_s = self._settings.timeout_s if timeout_s is None else timeout_s
        require(limit_s > 0, f"timeout_s is {limit_s}; it must be positive", "Leave it out for no time limit.")
        request = Request(
            next(self._numbers),
            payload,
            most_rows=self._settings.microbatch_rows,
            intended_s=intended_s,
            timeout_s=limit_s,
            priority=priority,
            on_cancel=self._withdraw,
            sequence=sequence,
        )
        with self._conductor.entered():
            self._check_open(request, sequence)
            self._parts.traffic.accept(request)
        if limit_s < math.inf:
            self._conductor.ring()
        return request.future

    def _check_open(self, request: Request, sequence: SequenceState | None) -> None:
        if self._crew.failure:
            raise EngineClosed(f"the pipeline has failed: {self._crew.failure}", "Make a new one.")
        if not self._conductor.open or (sequence is not None and sequence.closed):
            raise EngineClosed("the pipeline or sequence is closed", "Submit to an open one.")
        if self._parts.traffic.waiting >= self._settings.max_queue:
            after_s = self._parts.traffic.service_s
            problem = f"{self._parts.traffic.waiting} requests wait; max_queue is {self._settings.max_queue}"
            error = QueueFull(problem, f"Try again in {after_s * 1000:.0f} ms.", after_s)
            self._parts.ledger.refuse(request, error)
            raise error

    def _withdraw(self, request: Request) -> None:
        with self._conductor.entered():
            self._parts.traffic.withdraw(request)

    def _end_sequence(self, state: SequenceState) -> None:
        with self._conductor.entered():
            state.closed = True
            self._crew.tell_all(Forget(state.number))

    def _check_stage(self, stage: int) -> None:
        stages = len(self._crew.layout)
        require(0 <= stage < stages, f"stage is {stage}; there are {stages} stages", f"Give 0 to {stages - 1}.")


def _together(layers: Sequence[Any]) -> Any:
    return layers[0] if len(layers) == 1 else torch.nn.Sequential(*layers)


@atexit.register
def _close_all() -> None:
    """End the workers of pipelines that are still open when the program ends."""
    for conductor in list(_open):
        conductor.close(drain=False)
