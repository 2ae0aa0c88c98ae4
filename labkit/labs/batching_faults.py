"""Faults under load: what a user sees of a naive batcher, and of labkit's, under the same requests at the same times.

In the middle third of each run something goes wrong. The network is real (a small perceptron); poison and memory limits
are brought about on purpose, since nobody wants to wait for them, and the lab says so.

    poison          one row in 40 makes the whole batch raise
    out of memory   batches above 3 rows do not fit
    overload        twice the rate that the model can answer, on top
    cancellation    three of four clients give up at once
    mixed shapes    every other row has another length
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Literal

import numpy as np
import torch

from labkit.batching import Batcher
from labkit.engine import Engine
from labkit.errors import QueueFull, require, require_known
from labkit.labs.faulty_network import SCENARIOS, WIDTH, FaultyNetwork
from labkit.labs.frames import FRAME_S
from labkit.labs.naive import NaiveBatcher
from labkit.labs.note import Note
from labkit.labs.point import Point
from labkit.labs.tally import Client, tally
from labkit.records import RequestRecord
from labkit.workloads import Poisson

System = Literal["naive", "labkit"]

__all__ = ["SCENARIOS", "FaultSettings", "run"]

SYSTEMS: tuple[System, ...] = ("naive", "labkit")
_CAP = 16
_TIMEOUT_S = 0.5
_OVERLOAD = 2.0


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """Which fault, at which rate (1/s), for how many seconds per system."""

    scenario: str = "poison"
    rate_per_s: float = 250.0
    seconds: float = 6.0
    seed: int = 1

    def __post_init__(self) -> None:
        require_known("scenario", self.scenario, SCENARIOS)
        require(self.rate_per_s > 0, f"rate_per_s is {self.rate_per_s}; it must be positive", "Give a rate.")
        require(self.seconds >= 1, f"seconds is {self.seconds}; it must be at least 1", "Give 6, for example.")


@dataclass(slots=True)
class _Trial:
    """One system under one scenario."""

    settings: FaultSettings
    system: System
    network: FaultyNetwork
    times_s: list[float]
    clients: list[Client] = field(default_factory=list)

    def run(self, stop: Event) -> Generator[Point | Note, None, str]:
        """Yield frames; return what the users saw, in a sentence."""
        engine = self._engine()
        begun_s = time.perf_counter()
        try:
            yield from self._drive(engine, begun_s, stop)
            yield from self._settle(engine, begun_s, stop)
        finally:
            engine.close(drain=False)
        return tally(self.clients, engine.records.requests()).sentence(self.system)

    def _engine(self) -> Engine:
        if self.system == "naive":
            return NaiveBatcher(self.network, max_rows=_CAP)
        return Batcher(self.network, max_rows=_CAP, max_queue=4 * _CAP, timeout_s=_TIMEOUT_S, name="faults")

    def _drive(self, engine: Engine, begun_s: float, stop: Event) -> Iterator[Point]:
        frame, cursor = 1, 0
        for number, at_s in enumerate(self.times_s):
            if stop.is_set():
                return
            while (left_s := begun_s + at_s - time.perf_counter()) > 0:
                stop.wait(left_s)
                if stop.is_set():
                    return
            self.network.faulty = self._in_trouble(at_s)
            self._send(engine, number, begun_s + at_s, self.network.faulty)
            if at_s > frame * FRAME_S:
                frame = int(at_s / FRAME_S) + 1
                rows, cursor = engine.records.requests_since(cursor)
                yield from self._frame(rows, at_s)
        self.network.faulty = False

    def _in_trouble(self, at_s: float) -> bool:
        return self.settings.seconds / 3 <= at_s < 2 * self.settings.seconds / 3

    def _send(self, engine: Engine, number: int, intended_s: float, trouble: bool) -> None:
        scenario = self.settings.scenario
        client = Client(
            guilty=trouble and scenario == "poison" and number % 40 == 0,
            gave_up=trouble and scenario == "cancellation" and number % 4 != 0,
        )
        short = trouble and scenario == "mixed shapes" and number % 2 == 0
        row = torch.full((WIDTH // 2 if short else WIDTH,), float("nan") if client.guilty else 0.5)
        self.clients.append(client)
        try:
            client.future = engine.submit(row, intended_s=intended_s)
        except QueueFull:
            return
        if client.gave_up:
            client.future.cancel()

    def _frame(self, rows: list[RequestRecord], at_s: float) -> Iterator[Point]:
        good = [row for row in rows if row.outcome == "ok"]
        bad = [row for row in rows if row.outcome in ("failed", "rejected", "expired")]
        yield Point(f"{self.system}: answered", at_s, len(good) / FRAME_S)
        yield Point(f"{self.system}: not answered", at_s, len(bad) / FRAME_S)
        if good:
            yield Point(f"{self.system}: slowest", at_s, 1000 * max(row.latency_s for row in good))

    def _settle(self, engine: Engine, begun_s: float, stop: Event) -> Iterator[Point]:
        """Wait for what is still queued or runs; an unbounded queue takes its time."""
        cursor = engine.records.requests_since(0)[1]
        until_s = time.perf_counter() + self.settings.seconds
        while _is_busy(engine) and time.perf_counter() < until_s and not stop.wait(FRAME_S):
            rows, cursor = engine.records.requests_since(cursor)
            yield from self._frame(rows, time.perf_counter() - begun_s)


def _is_busy(engine: Engine) -> bool:
    snapshot = engine.snapshot()
    return snapshot.queued + snapshot.running > 0


def _times(settings: FaultSettings, network: FaultyNetwork) -> list[float]:
    """Send times in seconds; an overload brings more of them in the middle third."""
    times_s = Poisson(settings.rate_per_s).times(settings.seconds, settings.seed)
    if settings.scenario == "overload":
        third_s = settings.seconds / 3
        crowd = Poisson(_OVERLOAD * network.capacity_per_s(_CAP)).times(third_s, settings.seed + 1)
        times_s = np.sort(np.concatenate([times_s, crowd + third_s]))
    return [float(at_s) for at_s in times_s]


def run(settings: FaultSettings, stop: Event) -> Iterator[Point | Note]:
    """Drive both systems through the scenario, one after the other; yields frames, and last what was seen of both."""
    network = FaultyNetwork(settings.scenario)
    times_s = _times(settings, network)
    seen: list[str] = []
    for system in SYSTEMS:
        if stop.is_set():
            return
        yield Note(f"{system} under {settings.scenario!r}, which comes in the middle third")
        seen.append((yield from _Trial(settings, system, network, times_s).run(stop)))
    yield Note("; ".join(seen))
