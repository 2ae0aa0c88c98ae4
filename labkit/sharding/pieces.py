"""The weights of a model on their way to other hosts: cut where layers part, so that each host gets what it runs.

    segment:  | layer 0 | layer 1 | tensor a | tensor b | tensor c |
    pieces:   {0}: layer 0, a     {1}: layer 1, c     {0, 1}: b, which both use

A worker lays the pieces that it needs at their places in a memory of the whole's size; pages that it never writes take
no room. So layers are loaded there exactly as from shared memory, and tied weights are one tensor.
"""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from labkit.sharding.weights import Weights

__all__ = ["Piece", "Pieces", "cut"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Piece(NamedTuple):
    """What exactly these layers use: (offset, bytes) of its spans."""

    layers: frozenset[int]
    spans: tuple[tuple[int, int], ...]

    def lifted(self, memory: memoryview) -> Bytes:
        """Its bytes, one span behind the other."""
        whole = np.frombuffer(memory, np.uint8)
        return np.concatenate([whole[offset : offset + size] for offset, size in self.spans])

    def lay(self, memory: memoryview, data: Bytes) -> None:
        """Put them at their places."""
        whole, begin = np.frombuffer(memory, np.uint8), 0
        for offset, size in self.spans:
            whole[offset : offset + size] = data[begin : begin + size]
            begin += size


def cut(weights: Weights) -> list[Piece]:
    """Cut packed layers into pieces."""
    users: dict[tuple[int, int], set[int]] = defaultdict(set)
    for ref, specs in zip(weights.refs, weights.specs, strict=True):
        spans = [(ref.offset, ref.size_bytes), *((spec.offset, spec.size_bytes) for spec in specs)]
        for span in spans:
            if span[1]:
                users[span].add(ref.layer)
    together: dict[frozenset[int], list[tuple[int, int]]] = defaultdict(list)
    for span, layers in users.items():
        together[frozenset(layers)].append(span)
    return [Piece(layers, tuple(sorted(spans))) for layers, spans in together.items()]


class Pieces:
    """A worker's memory for weights, filled as layers are asked for."""

    def __init__(self, size_bytes: int, pieces: Iterable[tuple[Piece, Any]]) -> None:
        self.memory = memoryview(mmap.mmap(-1, size_bytes))
        self._missing = list(pieces)

    def wanted(self, layer: int) -> list[tuple[Piece, Any]]:
        """Take what `layer` needs and is not here yet, each piece with what it was given along with."""
        wanted = [one for one in self._missing if layer in one[0].layers]
        self._missing = [one for one in self._missing if layer not in one[0].layers]
        return wanted
