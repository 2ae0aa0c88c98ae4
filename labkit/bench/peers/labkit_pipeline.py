"""labkit's own pipeline under a closed load: its throughput, and what becomes of it when a stage is hurt."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from labkit.errors import LabkitError
from labkit.records import StepRecord
from labkit.sharding import Balancing, Budget, Pipeline, partition, profile

from .net import BenchModel, Net, model_of
from .protocol import serve

__all__ = ["Feed", "PipelineUnderLoad", "main"]

PAYLOADS = 4
SPOTS = 8
ANSWER_LIMIT_S = 60.0
RECOVERY_LIMIT_S = 30.0
# A replacement's first steps; what comes after is as before.
CALM_S = 0.2


class Feed:
    """Keeps requests in flight, each of one microbatch, and looks at every answer: `wrong` counts what was amiss.

    Payloads take turns, so an answer in another's place is a wrong one. Only a few spots of each answer are looked at,
    for the cores are the stages'.
    """

    def __init__(self, pipeline: Pipeline, model: BenchModel, depth: int) -> None:
        self.pipeline = pipeline
        self.payloads = [model.microbatch(seed) for seed in range(PAYLOADS)]
        with torch.inference_mode():
            whole = nn.Sequential(*model.layers())
            self.expected = [_sample(whole(payload)) for payload in self.payloads]
        # Twice what the pipeline lets in at a time, so that it never waits for us.
        self.in_flight = 2 * depth * sum(stage.workers for stage in pipeline.snapshot().stages)
        self.asked = self.wrong = 0
        self._flying: deque[tuple[int, Future[Any]]] = deque()

    def until(self, holds: Callable[[], bool]) -> None:
        """Go on until it holds; asked after each answer."""
        while not holds():
            while len(self._flying) < self.in_flight:
                kind = self.asked % PAYLOADS
                self._flying.append((kind, self.pipeline.submit(self.payloads[kind])))
                self.asked += 1
            self._take()

    def go(self, seconds: float) -> None:
        """Go on for so long."""
        end_s = time.perf_counter() + seconds
        self.until(lambda: time.perf_counter() >= end_s)

    def fill(self, seconds: float) -> None:
        """Go on for so long, and until the pipeline has been full and has answered as much as it holds."""
        self.go(seconds)
        self.until(lambda: self.asked - len(self._flying) >= self.in_flight)

    def drain(self) -> None:
        """Take the answers that are still to come."""
        while self._flying:
            self._take()

    def _take(self) -> None:
        kind, future = self._flying.popleft()
        try:
            self.wrong += not _alike(_sample(future.result(ANSWER_LIMIT_S)), self.expected[kind])
        except LabkitError:
            self.wrong += 1


class PipelineUnderLoad:
    """The pipeline that `open` has made."""

    pipeline: Pipeline
    model: BenchModel
    depth: int

    def plan(self, model: dict[str, Any], stages: int, threads: int) -> dict[str, Any]:
        """Where labkit would cut a real model, by what its layers take; and the largest value that crosses a cut."""
        torch.set_num_threads(threads)
        net = Net(**model)
        measured = profile(net.chain(), net.microbatch(), batch_sizes=(net.rows,))
        found = partition(measured.problem(["cpu"] * stages))
        edge_bytes = max(measured.cut_bytes[0][cut] for cut in found.boundaries[1:-1])
        return {"boundaries": found.boundaries, "edge_bytes": edge_bytes}

    def open(
        self,
        model: dict[str, Any],
        boundaries: list[int],
        slowdowns: list[float] | None = None,
        balanced: bool = False,
        spares: int = 0,
        depth: int = 2,
    ) -> dict[str, Any]:
        """Start it and answer one request; answer with the output's mean size."""
        self.model, self.depth = model_of(model), depth
        self.pipeline = Pipeline(
            self.model.layers(),
            boundaries=boundaries,
            slowdowns=slowdowns,
            spares=spares,
            depth=depth,
            balancing=Balancing() if balanced else None,
            # So many faults in so short a time would otherwise count as a broken device.
            budget=Budget(restarts=1000),
        )
        return {"size": float(self.pipeline.submit(self.model.microbatch()).result(ANSWER_LIMIT_S).abs().mean())}

    def run(self, seconds: float, warmup_s: float) -> dict[str, Any]:
        """The rate of answers in a window, with the load on until after its end."""
        feed = self._feed()
        feed.fill(warmup_s)
        begun_s = time.perf_counter()
        feed.go(seconds)
        answered_s = self._answered_s(begun_s, time.perf_counter())
        feed.drain()
        rate_per_s = (len(answered_s) - 1) / (answered_s[-1] - answered_s[0])
        return {"per_s": rate_per_s, "wrong": feed.wrong, "boundaries": list(self.pipeline.snapshot().boundaries)}

    def quiet(self, seconds: float) -> dict[str, Any]:
        """The longest time without an answer when nothing is wrong."""
        feed = self._feed()
        feed.go(CALM_S)
        begun_s = time.perf_counter()
        feed.go(seconds)
        gap_s = self._longest_gap_s(begun_s)
        feed.drain()
        return {"gap_s": gap_s}

    def fault(self, how: str, stage: int, lead_s: float) -> dict[str, Any]:
        """Hurt a stage under load, once its worker has been at work for `lead_s`; all times count from that moment."""
        feed = self._feed()
        feed.go(lead_s)
        _, cursor = self.pipeline.records.steps_since(0)
        struck_s = time.perf_counter()
        self.pipeline.inject(stage, "kill" if how == "kill" else "hang")
        watched = _Watched(self.pipeline, cursor, stage, struck_s)
        feed.until(watched.is_over)
        feed.go(CALM_S)
        gap_s = self._longest_gap_s(struck_s)
        feed.drain()
        return {
            "noticed_s": watched.noticed_s - struck_s if watched.noticed_s else None,
            "replaced_s": watched.replaced_s - struck_s if watched.replaced_s else None,
            "gap_s": gap_s,
            "asked": feed.asked,
            "wrong": feed.wrong,
            "spare": self._await_spare(),
        }

    def slow(self, stage: int, factor: float, settle_s: float, calm_s: float) -> dict[str, Any]:
        """Slow a stage down under load; go on until no boundary has moved for `calm_s`, or for `settle_s`."""
        feed = self._feed()
        feed.go(CALM_S)
        struck_s = changed_s = time.perf_counter()
        moves = self.pipeline.snapshot().moves
        first_move_s = None
        self.pipeline.inject(stage, "slow", factor=factor)
        while (now_s := time.perf_counter()) < struck_s + settle_s and (
            first_move_s is None or now_s < changed_s + calm_s
        ):
            feed.go(0.05)
            if self.pipeline.snapshot().moves != moves:
                moves, changed_s = self.pipeline.snapshot().moves, time.perf_counter()
                first_move_s = first_move_s or changed_s - struck_s
        feed.drain()
        snapshot = self.pipeline.snapshot()
        return {"moved_s": first_move_s, "moves": snapshot.moves, "boundaries": list(snapshot.boundaries)}

    def close(self) -> dict[str, Any]:
        """End it."""
        self.pipeline.close(drain=False)
        return {}

    def _feed(self) -> Feed:
        return Feed(self.pipeline, self.model, self.depth)

    def _answered_s(self, first_s: float, last_s: float) -> list[float]:
        return [row.finished_s for row in self.pipeline.records.requests() if first_s <= row.finished_s <= last_s]

    def _longest_gap_s(self, begun_s: float) -> float:
        now_s = time.perf_counter()
        before = [row.finished_s for row in self.pipeline.records.requests() if row.finished_s < begun_s]
        moments = [*before[-1:], *self._answered_s(begun_s, now_s), now_s]
        return max(later - earlier for earlier, later in pairwise(moments))

    def _await_spare(self) -> bool:
        """Whether a spare is warm again; the next fault must find one."""
        end_s = time.perf_counter() + RECOVERY_LIMIT_S
        while self.pipeline.snapshot().spares == 0:
            if time.perf_counter() > end_s:
                return False
            time.sleep(0.01)
        return True


class _Watched:
    """Reads from the rows of steps when a loss was noticed, and when the successor began its first step."""

    def __init__(self, pipeline: Pipeline, cursor: int, stage: int, struck_s: float) -> None:
        self._pipeline, self._cursor = pipeline, cursor
        self._stage = f"stage{stage}"
        self._end_s = struck_s + RECOVERY_LIMIT_S
        self.noticed_s = self.replaced_s = 0.0

    def is_over(self) -> bool:
        rows, self._cursor = self._pipeline.records.steps_since(self._cursor)
        for row in rows:
            self._look_at(row)
        return self.replaced_s > 0 or time.perf_counter() > self._end_s

    def _look_at(self, row: StepRecord) -> None:
        if row.stage != self._stage:
            return
        if row.outcome == "failed":
            self.noticed_s = self.noticed_s or row.finished_s
        elif self.noticed_s and row.started_s >= self.noticed_s:
            self.replaced_s = self.replaced_s or row.started_s


def _sample(output: torch.Tensor) -> list[float]:
    return output.flatten()[:: max(1, output.numel() // SPOTS)].tolist()


def _alike(sample: list[float], expected: list[float]) -> bool:
    return all(math.isclose(one, other, abs_tol=1e-4) for one, other in zip(sample, expected, strict=True))


def main() -> None:
    """Answer the bench's requests."""
    under_load = PipelineUnderLoad()
    commands = ("plan", "open", "run", "quiet", "fault", "slow", "close")
    serve({name: getattr(under_load, name) for name in commands})
