"""What it costs to send bytes from one device to the next: a fixed part and a part per byte.

    seconds = alpha_s + bytes / bytes_per_s

The model of Hockney (1994). Both numbers are fitted to timed copies, or given for a link that is not there yet.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite

import numpy as np
import torch
from torch import Tensor

from labkit.devices import find, synchronize
from labkit.errors import require

__all__ = ["Link", "measure_link"]

SIZES = (2**12, 2**16, 2**20, 2**22)
REPEATS = 15


@dataclass(frozen=True, slots=True)
class Link:
    """A way between two devices; the default one costs nothing.

    >>> Link(alpha_s=0.001, bytes_per_s=1e9).seconds(2_000_000)
    0.003
    """

    alpha_s: float = 0.0
    bytes_per_s: float = inf

    def __post_init__(self) -> None:
        require(
            self.alpha_s >= 0 and isfinite(self.alpha_s),
            f"alpha_s is {self.alpha_s}; it must not be negative",
            "Give the seconds that an empty message takes.",
        )
        require(
            self.bytes_per_s > 0,
            f"bytes_per_s is {self.bytes_per_s}; it must be positive",
            "Give the bandwidth in bytes.",
        )

    def seconds(self, size_bytes: float) -> float:
        """Time for one message of that size."""
        return self.alpha_s + size_bytes / self.bytes_per_s

    @classmethod
    def fit(cls, sizes_bytes: Sequence[float], seconds: Sequence[float]) -> Link:
        """Fit a link to timed messages of at least two sizes; least squares of the relative error.

        Relative, because a plain fit would let the largest message decide everything. Neither part becomes negative.

        >>> Link.fit([1e3, 1e6], [0.001001, 0.002]).bytes_per_s
        1000000000.0
        """
        require(len(set(sizes_bytes)) >= 2, "A link is fitted to two sizes at least", "Time messages of two sizes.")
        size, took = np.asarray(sizes_bytes, float), np.asarray(seconds, float)
        require(bool((took > 0).all()), "A message took no time", "Time longer, or several messages at once.")
        (alpha, per_byte), *_ = np.linalg.lstsq(np.stack([1 / took, size / took], axis=1), np.ones(len(took)))
        if alpha < 0:
            alpha, per_byte = 0.0, float(np.median(took / size))
        if per_byte <= 0:
            return cls(float(np.median(took)))
        return cls(float(alpha), float(f"{1 / per_byte:.6g}"))


@torch.inference_mode()
def measure_link(source: str, target: str, *, sizes_bytes: Sequence[int] = SIZES) -> Link:
    """Time copies between two attached devices and fit a link to them; some 50 ms.

    From the CPU to itself it is a copy into a buffer and out again, as between two processes with shared memory. A
    pipeline that knows its own channel better fits a link to that with `Link.fit`.

    Raises `UnknownName` for a device that is not attached.
    """
    ends = find(source).id, find(target).id
    buffers = {size: _buffers(size, *ends) for size in sizes_bytes}
    timed: dict[int, list[float]] = {size: [] for size in sizes_bytes}
    for _ in range(REPEATS):  # interleaved, so that a moment of load from elsewhere does not hit one size alone
        for size, hops in buffers.items():
            timed[size].append(_copy_s(hops, ends))
    return Link.fit(sizes_bytes, [statistics.median(times) for times in timed.values()])


def _buffers(size: int, source: str, target: str) -> list[Tensor]:
    places = [source, "cpu", target] if source == target == "cpu" else [source, target]
    return [torch.ones(size, dtype=torch.uint8, device=place) for place in places]


def _copy_s(hops: list[Tensor], ends: tuple[str, str]) -> float:
    for end in ends:
        synchronize(end)
    started_s = time.perf_counter()
    for before, after in pairwise(hops):
        after.copy_(before)
    for end in ends:
        synchronize(end)
    return time.perf_counter() - started_s
