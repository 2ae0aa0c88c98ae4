"""What a worker does, wherever it runs: load layers, run jobs, answer. It holds no plan and no queue but its pipe."""

from __future__ import annotations

import contextlib
import math
import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.connection import Connection
from threading import Event, Lock
from typing import Any, Protocol

import torch

from labkit.sharding.job import (
    Attach,
    Done,
    Failed,
    FailureKind,
    Forget,
    Grow,
    Job,
    LayerRef,
    Load,
    Loaded,
    Misbehave,
    Ping,
    Pong,
    Room,
    Tune,
    Unloadable,
    receiver,
    sender,
)
from labkit.sharding.lane import Lane, cast
from labkit.sharding.nested import map_leaves
from labkit.sharding.state import Behind, Held, Stateful, States

__all__ = ["Serving", "Shelf", "is_out_of_memory"]

_BEAT_S = 0.1
_MEMORY_MARKS = ("not enough memory", "can't allocate memory", "cannot allocate memory", "out of memory")


class Shelf(Protocol):
    """Where a worker finds values and layers, and leaves values."""

    def attach(self, attach: Attach, connection: Connection[Any, Any]) -> None:
        """Make a segment accessible."""

    def drop(self, segments: tuple[int, ...]) -> None:
        """Let go of segments that no longer exist."""

    def layer(self, load: Load, ref: LayerRef, lane: Lane) -> Any:
        """Build a layer on the lane's device."""

    def read(self, slot: int, lane: Lane) -> Any:
        """Give the value in `slot`, its tensors on the lane's device and the stage's own."""

    def write(self, slot: int, value: Any) -> tuple[bool, int]:
        """Put `value` into `slot`; return whether it fitted, and its size in bytes."""


class Serving:
    """One worker's loop: answers every message of `connection` until the controller closes it."""

    def __init__(self, connection: Connection[Any, Any], shelf: Shelf, *, owns_process: bool) -> None:
        self._connection, self._shelf, self._owns_process = connection, shelf, owns_process
        self._send, self._receive = _locked(sender(connection)), receiver(connection)
        self._at_work = Event()
        self._later: deque[Any] = deque()
        self._lane = Lane()
        self._layers: dict[int, tuple[Any, torch.dtype | None]] = {}
        self._states = States()
        self._slowdown = 1.0
        self._owed = 0.0

    def run(self) -> None:
        """Serve; returns when the controller is gone."""
        try:
            while True:
                message = self._later.popleft() if self._later else self._receive()
                self._at_work.set()
                self._answer(message)
                self._at_work.clear()
        except (EOFError, OSError):
            return

    def beat(self) -> None:
        """Give signs of life while there is work, from a thread of its own; they end when the process is frozen."""
        idle = Event()
        with contextlib.suppress(OSError):
            while not idle.wait(_BEAT_S):
                if self._at_work.is_set():
                    self._send(Pong())

    def _answer(self, message: Any) -> None:
        if isinstance(message, Job):
            self._work(message)
        elif isinstance(message, Attach):
            self._shelf.attach(message, self._connection)
        elif isinstance(message, Load):
            self._load(message)
        elif isinstance(message, Tune):
            self._tune(message)
        elif isinstance(message, Forget):
            self._states.forget(message.sequence)
        elif isinstance(message, Ping):
            self._send(Pong())
        elif isinstance(message, Misbehave):
            self.misbehave(message.how)

    def misbehave(self, how: str) -> None:
        """Do what a test or lab asks for; only a worker in a thread can."""

    def _tune(self, tune: Tune) -> None:
        self._slowdown = tune.slowdown
        if self._owns_process and torch.get_num_threads() != tune.threads:
            torch.set_num_threads(tune.threads)

    def _load(self, load: Load) -> None:
        begun_s = time.perf_counter()
        try:
            if str(self._lane.device) != load.device:
                self._lane, self._layers = Lane(load.device), {}
            kept = {ref.layer: self._layers[ref.layer] for ref in load.layers if ref.layer in self._layers}
            self._layers = kept
            for ref in load.layers:
                if ref.layer not in kept:
                    self._layers[ref.layer] = self._shelf.layer(load, ref, self._lane), ref.dtype
        except Exception as error:
            self._send(Unloadable(_described(error)))
        else:
            loaded = tuple(ref.layer for ref in load.layers)
            self._send(Loaded(loaded, time.perf_counter() - begun_s))

    def _work(self, job: Job) -> None:
        self._shelf.drop(job.dropped)
        begun_s = time.perf_counter()
        try:
            with self._lane.entered():
                value = self._shelf.read(job.source, self._lane)
                read_s = time.perf_counter()
                output, layer_s = self._outcome(job, value)
                computed_s = time.perf_counter()
                fits, written_bytes = self._shelf.write(job.target, output)
        except BaseException as error:
            self._fail(job, error, begun_s)
            return
        if not fits:
            self._send(Grow(job.key, written_bytes))
            self._shelf.write(self._room(job), output)
        finished_s = time.perf_counter()
        moved_s = (read_s - begun_s) + (finished_s - computed_s)
        self._send(Done(job.key, written_bytes, begun_s, finished_s, layer_s, moved_s))

    def _outcome(self, job: Job, value: Any) -> tuple[Any, tuple[float, ...]]:
        if job.sequence < 0:
            return self._through(job, value, None)
        held = self._held(job)
        outputs: list[Any] = []
        layer_s: tuple[float, ...] = ()
        for one in value if job.replay else [value]:
            output, layer_s = self._through(job, one, held)
            outputs.append(output)
        return (outputs if job.replay == "all" else outputs[-1]), layer_s

    def _held(self, job: Job) -> Held:
        if job.replay:
            return self._states.fresh(job.sequence)
        stateful = [number for number in range(job.first, job.last) if isinstance(self._layers[number][0], Stateful)]
        return self._states.at(job.sequence, job.position, stateful)

    def _through(self, job: Job, value: Any, held: Held | None) -> tuple[Any, tuple[float, ...]]:
        """Run the layers one after the other; each is timed on a CPU, all together where they only queue up."""
        repeats = self._repeats()
        ticks = [time.perf_counter()]
        value = self._lane.move(value)
        for number in range(job.first, job.last):
            layer, dtype = self._layers[number]
            value = _run(number, layer, cast(value, dtype), held, repeats)
            ticks.append(time.perf_counter())
        if self._lane.device.type == "cpu":
            return value, tuple(end_s - begun_s for begun_s, end_s in pairwise(ticks))
        self._lane.finish()
        return value, (time.perf_counter() - ticks[0],)

    def _repeats(self) -> int:
        """How often this job does its work; a slowdown of 1.5 alternates between once and twice."""
        self._owed += self._slowdown
        repeats = max(1, math.floor(self._owed + 1e-9))
        self._owed = max(0.0, self._owed - repeats)
        return repeats

    def _room(self, job: Job) -> int:
        """Wait for the larger slot; what else comes meanwhile is answered later, in order."""
        while True:
            message = self._receive()
            if isinstance(message, Attach):
                self._shelf.attach(message, self._connection)
            elif isinstance(message, Room) and message.key == job.key:
                return message.target
            else:
                self._later.append(message)

    def _fail(self, job: Job, error: BaseException, begun_s: float) -> None:
        kind: FailureKind = "raised"
        if isinstance(error, Behind):
            kind = "behind"
        elif is_out_of_memory(error):
            kind = "out_of_memory"
            self._lane.release()
        text = _described(error)
        self._send(Failed(job.key, kind, text, _pickled(error), begun_s, time.perf_counter()))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out, on any device."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error).lower() for mark in _MEMORY_MARKS)


def _locked(send: Callable[[Any], None]) -> Callable[[Any], None]:
    lock = Lock()

    def locked(message: Any) -> None:
        with lock:
            send(message)

    return locked


def _run(number: int, layer: Any, value: Any, held: Held | None, repeats: int) -> Any:
    if isinstance(layer, Stateful):
        return (held or Held()).run(number, layer, value, repeats)
    for _ in range(repeats - 1):
        # On copies, for a stage may write to its input.
        layer(map_leaves(_copied, value))
    return layer(value)


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf.copy()


def _described(error: BaseException) -> str:
    lines = traceback.format_exception_only(error)
    return " ".join(line.strip() for line in lines)


def _pickled(error: BaseException) -> bytes:
    """The exception with its traceback as a note, if it can be sent; else nothing."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        sent = pickle.dumps(error.with_traceback(None))
        pickle.loads(sent)
    except Exception:
        return b""
    return sent
