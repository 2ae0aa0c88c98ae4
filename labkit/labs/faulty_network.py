"""A real network whose faults are switched on for a while, so that a lab need not wait for them."""

from __future__ import annotations

import time

import torch

__all__ = ["SCENARIOS", "WIDTH", "FaultyNetwork"]

SCENARIOS = ("poison", "out of memory", "overload", "cancellation", "mixed shapes")
WIDTH = 1024
_DEPTH = 12
_FITS = 3


class FaultyNetwork:
    """A perceptron of 50 MB, `[rows, WIDTH]` (or half as wide) -> `[rows]`.

    Reading its weights is what a batch costs, whatever its size, so batching pays as it does on a large model. While
    `faulty`, batches above 3 rows raise out of memory in that scenario; a NaN is poison at any time.
    """

    def __init__(self, scenario: str) -> None:
        torch.manual_seed(0)
        layers = [part for _ in range(_DEPTH) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        self._layers = torch.nn.Sequential(*layers).eval()
        self._scenario = scenario
        self.faulty = False

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """The answers, or the fault of the scenario."""
        if self._scenario == "poison" and bool(torch.isnan(rows).any()):
            raise ValueError("a row holds NaN")
        if self._scenario == "out of memory" and self.faulty and len(rows) > _FITS:
            raise torch.OutOfMemoryError(f"emulated: {len(rows)} rows do not fit, {_FITS} do")
        output: torch.Tensor = self._layers(_widened(rows))
        return output.mean(dim=1)

    def capacity_per_s(self, rows: int) -> float:
        """Rows per second that it answers in batches of `rows`, measured now."""
        batch = torch.full((rows, WIDTH), 0.5)
        times_s = []
        with torch.inference_mode():
            for _ in range(5):
                begun_s = time.perf_counter()
                self(batch)
                times_s.append(time.perf_counter() - begun_s)
        return rows / sorted(times_s)[2]


def _widened(rows: torch.Tensor) -> torch.Tensor:
    return rows if rows.shape[1] == WIDTH else torch.nn.functional.pad(rows, (0, WIDTH - rows.shape[1]))
