"""S(b): how long a batch of b rows takes on your device, and what that says about batching.

The bare model is timed, without an engine, on ready batches: what batching could give at best. Sizes are interleaved
within each round, so that a machine that slows down slows all of them; the rounds are shown apart, because their spread
is the doubt. As a control, a batch of one is timed again at the end: it must take what it took at the start.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from threading import Event

import torch

from labkit.devices import keep_freed_memory, synchronize
from labkit.errors import require
from labkit.labs.note import Note
from labkit.labs.point import Point
from labkit.labs.subject import Subject, subject
from labkit.measure import LinearCurve, MeasuredCurve, best_batch, saturation_rate

__all__ = ["CurveSettings", "measure", "run", "sizes_up_to"]


@dataclass(frozen=True, slots=True)
class CurveSettings:
    """What to time: batches of `model` on `device` up to `cap` rows, `rounds` times each; `slo_ms` is the goal."""

    model: str = "efficientnet-lite0"
    device: str = "auto"
    cap: int = 16
    rounds: int = 3
    slo_ms: float = 200.0

    def __post_init__(self) -> None:
        require(self.cap >= 2, f"cap is {self.cap}; it must be at least 2", "A curve needs two sizes.")
        require(self.rounds >= 1, f"rounds is {self.rounds}; it must be at least 1", "Give a count.")
        require(self.slo_ms > 0, f"slo_ms is {self.slo_ms}; it must be positive", "Give milliseconds.")


def run(settings: CurveSettings, stop: Event) -> Iterator[Point | Note]:
    """Yield each round's times (ms over rows), their median, the fitted line, and rows per second."""
    yield Note(f"Loading {settings.model}")
    subj = subject(settings.model, settings.device)
    sizes = sizes_up_to(settings.cap)
    yield Note(f"Timing batches of {', '.join(map(str, sizes))} rows on {subj.device_name}")
    rounds: list[dict[int, float]] = []
    for number, times_ms in enumerate(measure(subj, sizes, settings.rounds, stop), 1):
        rounds.append(times_ms)
        for size, ms in times_ms.items():
            yield Point(f"round {number}", size, ms)
    if rounds:
        yield from _conclusion(settings, rounds)


def _conclusion(settings: CurveSettings, rounds: list[dict[int, float]]) -> Iterator[Point | Note]:
    sizes = list(rounds[0])
    middle = [median(times_ms[size] for times_ms in rounds) for size in sizes]
    curve, line = MeasuredCurve(tuple(sizes), tuple(middle)), LinearCurve.fit(sizes, middle)
    for size, ms in zip(sizes, middle, strict=True):
        yield Point("median", size, ms)
        yield Point("fit", size, line(size))
        yield Point("rows per second", size, 1000 * size / ms)
        yield Point("2 S(b)", size, 2 * ms)
    best = best_batch(settings.slo_ms, curve, settings.cap)
    rate = saturation_rate(curve, settings.cap)
    yield Note(f"S(b) is about {line.base_ms:.1f} ms + {line.row_ms:.2f} ms per row (measured, fitted)")
    yield Note(f"at most {rate:.0f} rows/s, against {1000 / curve(1):.0f} one by one: x{rate * curve(1) / 1000:.2f}")
    yield Note(
        f"the largest batch with 2 S(b) <= {settings.slo_ms:g} ms is {best}"
        if best
        else f"not even a batch of one fits twice into {settings.slo_ms:g} ms"
    )


def sizes_up_to(cap: int) -> list[int]:
    """The powers of two below `cap`, and `cap`.

    >>> sizes_up_to(12)
    [1, 2, 4, 8, 12]
    """
    return sorted({2**n for n in range(cap.bit_length()) if 2**n <= cap} | {cap})


def measure(subj: Subject, sizes: list[int], rounds: int, stop: Event) -> Iterator[dict[int, float]]:
    """Time one batch of each size per round, after one run of each that does not count; yields ms by size."""
    if subj.device_id == "cpu":
        keep_freed_memory()  # as the batcher does
    batches = {size: subj.batch(size) for size in sizes}
    for batch in batches.values():
        if stop.is_set():
            return
        _time_ms(subj, batch)
    for _ in range(rounds):
        if stop.is_set():
            return
        yield {size: _best_of_three_ms(subj, batch) for size, batch in batches.items()}


def _best_of_three_ms(subj: Subject, batch: torch.Tensor) -> float:
    return min(_time_ms(subj, batch) for _ in range(3))


def _time_ms(subj: Subject, batch: torch.Tensor) -> float:
    with torch.inference_mode():
        begun_s = time.perf_counter()
        subj.model.module(batch)
        synchronize(subj.device_id)
        return (time.perf_counter() - begun_s) * 1000
