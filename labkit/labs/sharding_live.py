"""The pipeline under a live load: its Gantt chart, its bottleneck, and what becomes of a slow, dead or hung stage.

Every number is computed from the engine's step rows and snapshots. Devices of other speeds are emulated by doing the
work several times over, and said to be. A stage that is slowed down while it runs is news to the planner: the engine
finds out by itself and moves a boundary.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from threading import Event
from typing import Literal

from labkit.errors import EngineClosed, require
from labkit.labs.dials import Dials
from labkit.labs.frames import FRAME_S, Recent, frames
from labkit.labs.note import Note
from labkit.labs.pipeline_frames import blanks, bottleneck, gantt, rows_per_s, shares
from labkit.labs.pipeline_load import LOADS, Load, PipelineLoad
from labkit.labs.point import Point
from labkit.labs.specimen import CUTS, Cut, Specimen, slowness, specimen
from labkit.labs.standstill import standstill
from labkit.sharding.balance import Balancing
from labkit.sharding.health import Health, PipelineSnapshot
from labkit.sharding.pipeline import Pipeline

__all__ = ["CUTS", "LOADS", "SPEEDS", "LiveSettings", "run"]

Fault = Literal["slow", "kill", "hang"]

SPEEDS = ("1 1 1 1", "1 1 1 2", "2 1 1 1", "1 2 1 1", "1 2 3 4")

_WINDOW_S = 2.0
_AGREE = 3
_FAULTS: dict[Fault, str] = {"slow": "slowed down", "kill": "killed", "hang": "made to hang"}
_GIVE_UP_S = 20.0


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The controls. `slow`, `kill` and `hang` count the presses of their buttons, which concern `stage`.

    `speeds` says how many times slower each device is, `by` how the model is cut for them, `rows` what a microbatch
    carries of a request of `request_rows`. `seconds` 0 runs until it is stopped; with `rehearse` nobody needs to press
    anything: the last stage is slowed down after a third of the time, the first is killed after two thirds.
    """

    model: str = "minilm"
    device: str = "auto"
    stages: int = 2
    speeds: str = "1 1 1 1"
    by: str = "throughput"
    rows: int = 4
    request_rows: int = 16
    load: str = "closed loop"
    in_flight: int = 4
    rate_per_s: float = 10.0
    rebalance: bool = True
    spares: int = 1
    stage: int = 0
    factor: float = 2.0
    slow: int = 0
    kill: int = 0
    hang: int = 0
    seconds: float = 12.0
    rehearse: bool = False

    def __post_init__(self) -> None:
        for name in ("stages", "rows", "request_rows", "in_flight", "factor"):
            value = getattr(self, name)
            require(value >= 1, f"{name} is {value}; it must be at least 1", "Give 1 or more.")
        require(self.seconds >= 0, f"seconds is {self.seconds}; it must be 0 or more", "Give 0 for no end.")
        slowness(self.speeds)

    def engine(self) -> tuple[object, ...]:
        """What cannot be changed without another pipeline."""
        names = ("model", "device", "stages", "speeds", "by", "rows", "rebalance", "spares")
        return tuple(getattr(self, name) for name in names)

    def asked(self) -> Load:
        """What is sent to it."""
        return Load(self.load, self.request_rows, self.in_flight, self.rate_per_s)


def run(dials: Dials[LiveSettings], stop: Event) -> Iterator[Point | Note]:
    """Drive a pipeline until `stop` or until time is up; yields a frame of points four times a second."""
    begun_s = 0.0
    while not stop.is_set():
        version, settings = dials.version, dials.get()
        yield Note(f"Loading {settings.model} and measuring its layers")
        found = specimen(settings.model, settings.device)
        cut = found.cut(settings.stages, settings.rows, settings.by, slowness(settings.speeds))
        with _Session(found, cut, settings) as session:
            begun_s = begun_s or time.perf_counter()
            yield Note(session.described())
            yield from session.frames(dials, stop, version, begun_s)
        if not session.replaced:
            return
        yield from blanks(len(cut.plan))


class _Session:
    """One pipeline under load, until a setting asks for another one."""

    def __init__(self, found: Specimen, cut: Cut, settings: LiveSettings) -> None:
        self._cut, self._settings = cut, settings
        balancing = Balancing() if settings.rebalance else None
        self._pipeline: Pipeline = found.pipeline(cut, spares=settings.spares, balancing=balancing)
        self._load = PipelineLoad(self._pipeline, found.rows, settings.asked())
        self._steps = Recent(self._pipeline.records.steps_since, 2 * _WINDOW_S)
        self._boundaries = cut.plan.boundaries
        self._fault: tuple[Fault, int, float] | None = None
        self._said = ""
        self._heard: deque[str] = deque(maxlen=_AGREE)
        self._rehearsed = 0
        self._begun_s = 0.0
        self.replaced = False

    def __enter__(self) -> _Session:
        self._load.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._load.stop()
        self._pipeline.close(drain=False)

    def described(self) -> str:
        """The cut, and what it should give."""
        emulated = ", whose other speeds are emulated" if max(self._cut.slowdowns_of_stages()) > 1 else ""
        places = ", ".join(dict.fromkeys(self._cut.places))
        stages = "1 stage" if len(self._cut.plan) == 1 else f"{len(self._cut.plan)} stages"
        return (
            f"{stages} of {self._cut} layers on {places}{emulated}: "
            f"at most {self._cut.rows_per_s:.0f} rows/s (modelled)"
        )

    def frames(self, dials: Dials[LiveSettings], stop: Event, version: int, begun_s: float) -> Iterator[Point | Note]:
        """Frames until another pipeline is wanted, or time is up; `version` is that of the settings it began with."""
        self._begun_s = begun_s
        for now_s, turned in frames(dials, version, stop):
            self._load.check()
            if turned is not None:
                yield from self._follow(turned)
            if self.replaced or 0 < self._settings.seconds < now_s - self._begun_s:
                return
            if self._settings.rehearse:
                yield from self._rehearse(now_s - self._begun_s)
            yield from self._frame(now_s)

    def _follow(self, settings: LiveSettings) -> Iterator[Note]:
        before, self._settings = self._settings, settings
        self.replaced = before.engine() != settings.engine()
        if self.replaced:
            return
        self._load.follow(settings.asked())
        for fault in _FAULTS:
            if getattr(settings, fault) > getattr(before, fault):
                yield from self._do(fault, settings.stage)

    def _rehearse(self, at_s: float) -> Iterator[Note]:
        due = int(3 * at_s / self._settings.seconds) if self._settings.seconds else 0
        if due > self._rehearsed:
            self._rehearsed = due
            yield from self._do("slow", len(self._boundaries) - 2) if due == 1 else self._do("kill", 0)

    def _do(self, fault: Fault, stage: int) -> Iterator[Note]:
        last = len(self._boundaries) - 2
        if stage > last:
            yield Note(f"There is no stage {stage}; the last one is stage {last}")
            return
        factor, at_s = self._settings.factor, time.perf_counter()
        self._pipeline.inject(stage, fault, factor=factor)
        if fault == "slow":
            yield Note(f"Stage {stage} now takes {factor:g} times as long (emulated), and nobody told the planner")
            return
        self._fault = (fault, stage, at_s)
        yield Note(f"Stage {stage} was {_FAULTS[fault]}")

    def _frame(self, now_s: float) -> Iterator[Point | Note]:
        new = self._steps.read(now_s)
        snapshot, at_s = self._pipeline.snapshot(), now_s - self._begun_s
        if snapshot.health is Health.FAILED:
            raise EngineClosed(f"the pipeline has failed: {snapshot.reason}", "Press Run for a new one.")
        since_s = min(max(now_s - _WINDOW_S, self._load.started_s), now_s - FRAME_S)
        yield from gantt(new, self._begun_s)
        yield Point("rows per second", at_s, rows_per_s(self._steps.rows, len(snapshot.stages) - 1, since_s, now_s))
        yield Point("planned (modelled)", at_s, self._cut.rows_per_s)
        yield from shares(snapshot, at_s)
        yield from self._news(snapshot, now_s)

    def _news(self, snapshot: PipelineSnapshot, now_s: float) -> Iterator[Note]:
        if snapshot.boundaries != self._boundaries:
            self._boundaries = snapshot.boundaries
            sizes = " | ".join(str(end - start) for start, end in pairwise(self._boundaries))
            yield Note(f"The model is cut anew: the stages now have {sizes} layers")
        if self._fault is not None:
            yield from self._aftermath(snapshot, now_s)
            return
        said = bottleneck(snapshot)
        self._heard.append(said.split(":")[0])
        # Said once, and only when some frames in a row agree on it.
        if self._heard.count(self._heard[-1]) == _AGREE and self._heard[-1] != self._said:
            self._said = self._heard[-1]
            yield Note(said)

    def _aftermath(self, snapshot: PipelineSnapshot, now_s: float) -> Iterator[Note]:
        assert self._fault is not None
        fault, stage, at_s = self._fault
        found = standstill(self._steps.rows, stage, len(snapshot.stages) - 1, at_s)
        if found is not None:
            yield Note(
                f"Stage {stage} was back {found.back_ms:.0f} ms after it was {_FAULTS[fault]}; "
                f"the longest wait for a result was {found.gap_ms:.0f} ms; {snapshot.failed} requests failed"
            )
        if found is not None or now_s > at_s + _GIVE_UP_S:
            self._fault = None
