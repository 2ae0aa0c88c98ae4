"""The batching curve: fit what a batch costs, then choose the size that a latency goal allows."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np

from labkit.teach.exercise import Case, Exercise, cases_of

__all__ = ["EXERCISES", "LAB", "best_batch", "fit_curve"]

LAB = "10_batching_curve"


def fit_curve(sizes: list[int], times_ms: list[float]) -> tuple[float, float]:
    """Fixed and per-row milliseconds of the straight line with the least squared error."""
    x, y = np.asarray(sizes, dtype=float), np.asarray(times_ms, dtype=float)
    away = x - x.mean()
    per_row_ms = (away * y).sum() / (away**2).sum()
    return y.mean() - per_row_ms * x.mean(), per_row_ms


def best_batch(fixed_ms: float, per_row_ms: float, slo_ms: float, cap: int) -> int:
    """Largest batch, at most `cap`, that fits twice into the goal: one to wait for, one to ride in; 0 if none does."""
    return max(0, min(cap, floor((slo_ms / 2 - fixed_ms) / per_row_ms)))


def _curve(fixed_ms: float, per_row_ms: float, noise_ms: float, seed: int) -> Case:
    sizes = [1, 2, 4, 8, 12, 16, 24, 32]
    noise = np.random.default_rng(seed).normal(0.0, noise_ms, len(sizes))
    times = [round(fixed_ms + per_row_ms * size + float(jitter), 3) for size, jitter in zip(sizes, noise, strict=True)]
    slope, intercept = np.polyfit(sizes, times, 1)  # a reference that shares no code with the solution
    why = "The line of least squares through these points is another one."
    return Case({"sizes": sizes, "times_ms": times}, (float(intercept), float(slope)), why)


def _curve_cases() -> list[Case]:
    return [_curve(20.0, 1.0, 0.0, seed=0), _curve(20.0, 1.0, 0.8, seed=1), _curve(3.0, 11.0, 4.0, seed=2)]


def _error(results: list[tuple[Case, Any]]) -> str:
    worst = max(
        abs(float(part) - truth) / abs(truth)
        for case, got in results
        for part, truth in zip(got, case.expected, strict=True)
    )
    return f"largest relative error {worst:.0e}"


def _batch_cases() -> list[Case]:
    return cases_of(
        best_batch,
        (20.0, 1.0, 100.0, 64, 30, "A request that just missed a batch waits for that one, then rides the next."),
        (20.0, 1.0, 100.0, 16, 16, "No batch may have more rows than the cap."),
        (8.0, 4.0, 50.0, 64, 4, "The size is a whole number, and 5 rows take 28 ms: twice that is past 50 ms."),
        (60.0, 1.0, 100.0, 64, 0, "One row alone takes 61 ms, so no batch fits: answer 0."),
        (0.0, 25.0, 50.0, 64, 1, "One row fits exactly, and exactly is enough."),
    )


EXERCISES = (
    Exercise(
        id="10a",
        lab=LAB,
        task="Write fit_curve(sizes, times_ms) -> (fixed_ms, per_row_ms): the line of least squares.",
        hints=(
            "Two unknowns, many points: look for the line whose squared distances from the points add up to the least.",
            "The slope is sum((x - mean x)·y) / sum((x - mean x)²); the line goes through (mean x, mean y).",
            "np.polyfit(sizes, times_ms, 1) returns the slope first, then the constant.",
        ),
        reference=fit_curve,
        cases=_curve_cases,
        score=_error,
    ),
    Exercise(
        id="10b",
        lab=LAB,
        task="Write best_batch(fixed_ms, per_row_ms, slo_ms, cap): the largest b with 2·S(b) <= SLO, or 0.",
        hints=(
            "The unlucky request arrives just after a batch has left. How long until it has its answer?",
            "It waits S(b) for the running batch, then S(b) in its own: 2·(fixed + per_row·b) must fit into the goal.",
            "Solve for b, round down, and keep the result between 0 and the cap.",
        ),
        reference=best_batch,
        cases=_batch_cases,
    ),
)
