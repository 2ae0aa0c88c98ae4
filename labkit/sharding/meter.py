"""How long the stages take: means for the snapshot, windows for the balancer."""

from __future__ import annotations

from collections import deque

import numpy as np

from labkit.sharding.balance import Window
from labkit.sharding.layout import Layout

__all__ = ["Meter"]

_BUSY_S = 2.0
_MOST_JOBS = 1024
_WEIGHT = 0.1


class _StageMeter:
    def __init__(self, layers: int) -> None:
        self.layers = layers
        self.times: deque[tuple[float, ...]] = deque(maxlen=_MOST_JOBS)
        self.step_s = 0.0
        self.recent: deque[tuple[float, float]] = deque()

    def add(self, layer_s: tuple[float, ...], started_s: float, finished_s: float) -> None:
        duration_s = finished_s - started_s
        self.step_s += (_WEIGHT if self.step_s else 1.0) * (duration_s - self.step_s)
        self.recent.append((started_s, finished_s))
        whole = (sum(layer_s) / self.layers,) * self.layers
        self.times.append(layer_s if len(layer_s) == self.layers else whole)

    def middle_s(self) -> tuple[float, ...]:
        """Mean seconds of each layer, over the middle half: a job that was preempted says nothing about its device."""
        times = np.sort(np.array(self.times), axis=0)
        quarter = len(times) // 4
        return tuple(times[quarter : len(times) - quarter].mean(axis=0).tolist())

    def busy(self, now_s: float, workers: int) -> float:
        since_s = now_s - _BUSY_S
        while self.recent and self.recent[0][1] < since_s:
            self.recent.popleft()
        busy_s = sum(end_s - max(begun_s, since_s) for begun_s, end_s in self.recent)
        return min(1.0, busy_s / (_BUSY_S * max(1, workers)))


class Meter:
    """One stage meter per stage of the present layout; starts anew when the layout changes."""

    def __init__(self, layout: Layout) -> None:
        self._stages = [_StageMeter(len(layout.layers_of(stage))) for stage in range(len(layout))]

    def add(self, stage: int, layer_s: tuple[float, ...], started_s: float, finished_s: float) -> None:
        """Note a step that ran the whole stage."""
        self._stages[stage].add(layer_s, started_s, finished_s)

    def is_full(self, jobs: int) -> bool:
        """Whether every stage has done enough `jobs` for a window."""
        return all(len(stage.times) >= jobs for stage in self._stages)

    def window(self, replicas: tuple[int, ...]) -> Window:
        """Close the window."""
        means = tuple(stage.middle_s() for stage in self._stages)
        self.restart()
        return Window(means, replicas)

    def restart(self) -> None:
        """Begin the window anew."""
        for stage in self._stages:
            stage.times.clear()

    def step_s(self, stage: int) -> float:
        """Mean seconds of a step; 0 before the first."""
        return self._stages[stage].step_s

    def busy(self, stage: int, now_s: float, workers: int) -> float:
        """The share of the last two seconds in which the stage's workers computed."""
        return self._stages[stage].busy(now_s, workers)
