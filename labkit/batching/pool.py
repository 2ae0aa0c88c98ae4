"""Staging memory: rows are prepared where the batch will be read, so that collating copies nothing.

Each row shape has one preallocated block `[slots, *shape]`, used as a ring. Preprocessing writes its row into the next
slot; a batch of consecutive slots is a *view* of the block. Only a batch with a gap (a cancelled neighbour, a priority
that overtook, the end of the ring) is gathered by one copy, and the bytes of that copy are counted.

On the host the block is shared memory; for CUDA it is page-locked, so that copies to the device run beside its
computation.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import torch

__all__ = ["PoolSnapshot", "Slot", "StagingPool", "StagingRing", "side_by_side"]


@dataclass(slots=True)
class Slot:
    """One row's place: `tensor` is row `index` of the ring's block (index -1: outside, the ring was full).

    `arrived` is the event of its early copy to a device, if a runner made one.
    """

    ring: StagingRing
    index: int
    tensor: torch.Tensor
    arrived: torch.cuda.Event | None = None

    def release(self) -> None:
        """Give the place back; its tensor must not be used after that."""
        self.ring.release(self.index)


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """`used_bytes` of `held_bytes` are in use; `peak_bytes` is the high-water mark; `overflows` rows found no slot."""

    held_bytes: int
    used_bytes: int
    peak_bytes: int
    overflows: int


class StagingRing:
    """The slots of one row shape and dtype."""

    def __init__(self, slots: int, shape: tuple[int, ...], dtype: torch.dtype, *, pinned: bool = False) -> None:
        self.block = _block((slots, *shape), dtype, pinned)
        self.row_bytes = self.block[0].nbytes
        self.peak = 0
        self.used = 0
        self.overflows = 0
        self._busy = bytearray(slots)
        self._next = 0
        self._lock = Lock()

    def acquire(self) -> Slot:
        """Take the next free slot in ring order; a full ring answers with ordinary memory."""
        with self._lock:
            # An empty ring begins anew at its start: the fewer batches cross its end, the fewer are copied.
            index = self._busy.find(0, self._next if self.used else 0)
            if index < 0:
                index = self._busy.find(0)
            if index < 0:
                self.overflows += 1
                return Slot(self, -1, torch.zeros_like(self.block[0]))
            self._busy[index] = 1
            self._next = (index + 1) % len(self._busy)
            self.used += 1
            self.peak = max(self.peak, self.used)
        return Slot(self, index, self.block[index])

    def release(self, index: int) -> None:
        """Free slot `index`; -1 (a row outside the ring) is nothing to free."""
        if index >= 0:
            with self._lock:
                self._busy[index] = 0
                self.used -= 1


def _block(shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> torch.Tensor:
    """Zeros, not garbage: a row of token ids that was never written must still be valid ids.

    On the host it is an anonymous shared mapping: a page counts only once it is written, and a forked worker sees the
    same rows.
    """
    if pinned or not math.prod(shape):
        return torch.zeros(shape, dtype=dtype, pin_memory=pinned)
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def side_by_side(slots: Sequence[Slot]) -> bool:
    """Whether `slots` are consecutive rows of one block."""
    ring, first = slots[0].ring, slots[0].index
    return first >= 0 and all(slot.ring is ring and slot.index == first + n for n, slot in enumerate(slots))


class StagingPool:
    """The rings of all row shapes that were seen, at most `max_shapes` of them.

    >>> pool = StagingPool(slots=4)
    >>> rows = [pool.acquire((2,), torch.float32) for _ in range(3)]
    >>> side_by_side(rows)   # so `rows[0].ring.block[0:3]` is their batch
    True
    """

    def __init__(self, slots: int, *, pinned: bool = False, max_shapes: int = 64) -> None:
        self._slots = slots
        self._pinned = pinned
        self._max_shapes = max_shapes
        self._rings: dict[tuple[tuple[int, ...], torch.dtype], StagingRing] = {}
        self._lock = Lock()

    def acquire(self, shape: tuple[int, ...], dtype: torch.dtype) -> Slot:
        """A slot for one row of `shape`; never waits."""
        return self._ring(tuple(shape), dtype).acquire()

    def _ring(self, shape: tuple[int, ...], dtype: torch.dtype) -> StagingRing:
        with self._lock:
            ring = self._rings.get((shape, dtype))
            if ring is None:
                # A stream of ever new shapes must not hold a block for each: idle rings go first.
                if len(self._rings) >= self._max_shapes:
                    self._rings = {key: kept for key, kept in self._rings.items() if kept.used}
                ring = self._rings[shape, dtype] = StagingRing(self._slots, shape, dtype, pinned=self._pinned)
            return ring

    def resized(self, slots: int) -> StagingPool:
        """A new, empty pool of this kind; rows in this one stay valid until they are released."""
        return StagingPool(slots, pinned=self._pinned, max_shapes=self._max_shapes)

    def snapshot(self) -> PoolSnapshot:
        """Bytes held, in use, at most in use so far, and how many rows found their ring full."""
        with self._lock:
            rings = list(self._rings.values())
        return PoolSnapshot(
            held_bytes=sum(ring.block.nbytes for ring in rings),
            used_bytes=sum(ring.used * ring.row_bytes for ring in rings),
            peak_bytes=sum(ring.peak * ring.row_bytes for ring in rings),
            overflows=sum(ring.overflows for ring in rings),
        )
