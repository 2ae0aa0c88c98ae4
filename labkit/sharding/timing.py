"""Time the layers of a chain one by one, on one device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from labkit.devices import keep_freed_memory, memory_free_bytes, synchronize
from labkit.sharding.chain import Chain
from labkit.sharding.nested import map_leaves

__all__ = ["layer_times"]


@torch.inference_mode()
def layer_times(
    chain: Chain, inputs: dict[int, Any], device: str, dtype: torch.dtype | None, repeats: int
) -> dict[int, list[float]]:
    """Seconds of each layer, for each number of rows in `inputs`; medians of `repeats` passes, after one to warm up.

    Each pass runs the layers in their order, so that a layer finds the caches as it will find them later, and the
    passes of the different numbers of rows take turns. A chain that does not fit on the device goes there in parts.
    """
    keep_freed_memory()  # as in the workers
    values = {rows: _moved(value, device) for rows, value in inputs.items()}
    taken: dict[int, list[float]] = {rows: [] for rows in inputs}
    for first, last in _parts(chain, device):
        layers = [chain.taken(layer, layer + 1).to(device, dtype) for layer in range(first, last)]
        samples: dict[int, list[list[float]]] = {rows: [] for rows in inputs}
        outs: dict[int, Any] = {}
        for _ in range(repeats + 1):
            for rows, value in values.items():
                outs[rows], seconds = _pass(layers, value, device)
                samples[rows].append(seconds)
        for rows, passes in samples.items():
            taken[rows] += [statistics.median(times) for times in zip(*passes[1:], strict=True)]
        values = outs
    return taken


def _pass(layers: list[nn.Module], value: Any, device: str) -> tuple[Any, list[float]]:
    value = map_leaves(torch.clone, value)  # a layer that works in place would change it for the next pass
    seconds = []
    for layer in layers:
        synchronize(device)
        started_s = time.perf_counter()
        value = layer(value)
        synchronize(device)
        seconds.append(time.perf_counter() - started_s)
    return value, seconds


def _parts(chain: Chain, device: str) -> Iterator[tuple[int, int]]:
    """Runs of layers whose weights take at most half of the device's free memory."""
    budget, first, held = memory_free_bytes(device) // 2, 0, 0
    for layer in range(len(chain)):
        size = sum(chain.weights(layer).values())
        if layer > first and held + size > budget:
            yield first, layer
            first, held = layer, 0
        held += size
    yield first, len(chain)


def _moved(value: Any, device: str) -> Any:
    return map_leaves(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, value)
