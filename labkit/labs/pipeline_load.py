"""A load for a pipeline that can be changed while it runs: requests of several rows, in a closed or an open loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event, Semaphore, Thread
from time import perf_counter
from typing import Any

import torch

from labkit.engine import Engine
from labkit.errors import LabkitError, require_known
from labkit.measure import LiveArrivals, drive_live
from labkit.workloads import Workload

__all__ = ["LOADS", "Load", "PipelineLoad"]

LOADS = ("closed loop", "open loop")
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of `rows` rows each: `in_flight` of them at any time, or in an open loop `rate_per_s`."""

    kind: str = "closed loop"
    rows: int = 16
    in_flight: int = 4
    rate_per_s: float = 10.0

    def __post_init__(self) -> None:
        require_known("load", self.kind, LOADS)


class PipelineLoad:
    """Sends requests made by `rows_of(count)` from a thread of its own until it is stopped."""

    def __init__(self, engine: Engine, rows_of: Callable[[int], torch.Tensor], load: Load) -> None:
        self._engine, self._rows_of, self._load = engine, rows_of, load
        self._arrivals = LiveArrivals(load.rate_per_s)
        self._failure: LabkitError | None = None
        self._halt = Event()
        self._thread: Thread | None = None
        self.started_s = perf_counter()

    def __enter__(self) -> PipelineLoad:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to send."""
        self._halt = Event()
        self._thread = Thread(target=self._send, args=(self._load, self._halt), name="pipeline-load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._halt.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def follow(self, load: Load) -> None:
        """Send as `load` says from now on."""
        if load != self._load:
            self.stop()
            self._load = load
            self._arrivals.set(load.rate_per_s)
            self.start()

    def check(self) -> None:
        """Raise what has ended the sending, if anything has."""
        if self._failure is not None:
            raise self._failure

    def _send(self, load: Load, halt: Event) -> None:
        payload = self._rows_of(load.rows)
        try:
            if load.kind == "open loop":
                drive_live(self._engine, self._arrivals, Workload("rows", (payload,)), halt)
            else:
                self._closed(payload, load.in_flight, halt)
        except LabkitError as error:
            if not halt.is_set():
                self._failure = error

    def _closed(self, payload: torch.Tensor, in_flight: int, halt: Event) -> None:
        """Each answer releases the next request."""
        places = Semaphore(in_flight)

        def release(_: Future[Any]) -> None:
            places.release()

        while not halt.is_set():
            if places.acquire(timeout=_LOOK_S):
                self._engine.submit(payload).add_done_callback(release)
