"""The dynamic batcher under a live load: every control can be turned while it runs.

An open loop of Poisson or gamma arrivals sends real payloads; each frame computes its numbers from the engine's records
of the last ten seconds and from nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event, Thread

from labkit.batching import Batcher, Policy
from labkit.errors import LabkitError, require
from labkit.labs.dials import Dials
from labkit.labs.frames import Recent, frames
from labkit.labs.note import Note
from labkit.labs.point import Point
from labkit.labs.policies import policy
from labkit.labs.subject import Subject, subject
from labkit.measure import LiveArrivals, Metrics, Percentile, drive_live, summarise

__all__ = ["LiveSettings", "run"]

_WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The controls. `seconds` 0 runs until it is stopped; `burstiness` is the gaps' coefficient of variation."""

    model: str = "minilm"
    device: str = "auto"
    rate_per_s: float = 60.0
    burstiness: float = 1.0
    policy: str = "greedy"
    cap: int = 16
    wait_ms: float = 10.0
    slo_ms: float = 100.0
    seconds: float = 15.0

    def __post_init__(self) -> None:
        require(self.cap >= 1, f"cap is {self.cap}; it must be at least 1", "Give the rows that one batch may carry.")
        require(self.seconds >= 0, f"seconds is {self.seconds}; it must be 0 or more", "Give 0 for no end.")


def run(dials: Dials[LiveSettings], stop: Event) -> Iterator[Point | Note]:
    """Drive the batcher until `stop` or until time is up; yields a frame of points four times a second."""
    begun_s = time.perf_counter()
    while not stop.is_set():
        version, settings = dials.version, dials.get()
        yield Note(f"Loading {settings.model}")
        subj = subject(settings.model, settings.device)
        with _Session(subj, settings) as session:
            yield Note(f"Running on {subj.device_name}")
            yield from session.frames(dials, stop, version, begun_s)
        # A model cannot be exchanged inside an engine; everything else can.
        if not session.replaced:
            return


class _Session:
    """One engine under load, until its model or device is changed."""

    def __init__(self, subj: Subject, settings: LiveSettings) -> None:
        self._settings = settings
        self._arrivals = LiveArrivals(settings.rate_per_s, settings.burstiness)
        self._engine = Batcher(
            subj.model.module,
            prepare=subj.model.prepare,
            device=subj.device_id,
            policy=_policy(settings),
            max_rows=settings.cap,
            max_queue=512,
            name="live",
        )
        self._engine.warmup(subj.workload.payload(0))
        self._halt = Event()
        self._failure: LabkitError | None = None
        self._sender = Thread(target=self._send, args=(subj,), name="live-load", daemon=True)
        self._requests = Recent(self._engine.records.requests_since, _WINDOW_S)
        self._steps = Recent(self._engine.records.steps_since, _WINDOW_S)
        self._shown = ""
        self.replaced = False

    def __enter__(self) -> _Session:
        self._sender.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._sender.join(5.0)
        self._engine.close(drain=False)

    def _send(self, subj: Subject) -> None:
        try:
            drive_live(self._engine, self._arrivals, subj.workload, self._halt)
        except LabkitError as error:
            self._failure = error

    def frames(self, dials: Dials[LiveSettings], stop: Event, version: int, begun_s: float) -> Iterator[Point | Note]:
        for now_s, turned in frames(dials, version, stop):
            if self._failure is not None:
                raise self._failure
            if turned is not None:
                self._follow(turned)
                yield Note(f"Now: {_described(self._settings)}")
            if self.replaced or 0 < self._settings.seconds < now_s - begun_s:
                return
            yield from self._frame(now_s, now_s - begun_s)

    def _follow(self, settings: LiveSettings) -> None:
        before, self._settings = self._settings, settings
        self.replaced = (before.model, before.device) != (settings.model, settings.device)
        self._arrivals.set(settings.rate_per_s, settings.burstiness)
        if _policy_fields(before) != _policy_fields(settings):
            self._engine.configure(policy=_policy(settings), max_rows=settings.cap)

    def _frame(self, now_s: float, at_s: float) -> Iterator[Point]:
        metrics, snapshot = self._window(now_s), self._engine.snapshot()
        if metrics is None:
            return
        yield Point("p50", at_s, metrics.p50.value_ms)
        yield from self._high(metrics.p99, at_s)
        yield Point("offered", at_s, metrics.offered_per_s)
        yield Point("answered in time", at_s, metrics.goodput_per_s)
        yield Point("waiting", at_s, snapshot.queued)
        yield Point("in the batch", at_s, snapshot.running)
        yield Point("mean batch", at_s, metrics.mean_batch)
        yield Point("fill", at_s, 100 * metrics.fill)
        yield Point("device busy", at_s, 100 * metrics.busy_share)
        yield Point("within SLO", at_s, 100 * metrics.attainment)

    def _high(self, high: Percentile, at_s: float) -> Iterator[Point]:
        """The highest percentile that the window supports; the one shown before ends when it is another."""
        if self._shown not in ("", high.label):
            yield Point(self._shown, at_s, math.nan)
        self._shown = high.label if high.level > 50 else ""
        if self._shown:
            yield Point(self._shown, at_s, high.value_ms)

    def _window(self, now_s: float) -> Metrics | None:
        """The metrics of what ended in the last ten seconds; None before the first answer."""
        self._requests.read(now_s)
        self._steps.read(now_s)
        requests, steps, slo_ms = self._requests.rows, self._steps.rows, self._settings.slo_ms
        if not requests:
            return None
        start_s = max(now_s - _WINDOW_S, min(row.intended_s for row in requests))
        return summarise(requests, steps, window_s=now_s - start_s, start_s=start_s, slo_ms=slo_ms)


def _policy_fields(settings: LiveSettings) -> tuple[object, ...]:
    return settings.policy, settings.cap, settings.wait_ms, settings.slo_ms


def _policy(settings: LiveSettings) -> Policy:
    return policy(settings.policy, cap=settings.cap, wait_ms=settings.wait_ms, slo_ms=settings.slo_ms)


def _described(settings: LiveSettings) -> str:
    return f"{settings.rate_per_s:g}/s, {settings.policy}, at most {settings.cap} rows, SLO {settings.slo_ms:g} ms"
