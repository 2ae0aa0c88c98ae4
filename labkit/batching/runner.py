"""Runs one batch on one device: collate, move, compute, bring back, split."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from labkit.batching.collate import collate, split
from labkit.batching.request import Request
from labkit.devices import keep_freed_memory

__all__ = ["Executed", "HostRunner", "Runner", "keep"]

Model = Callable[[Any], Any]

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


@dataclass(frozen=True, slots=True)
class Executed:
    """The answers of one batch, and what it took to put it together."""

    outputs: list[Any]
    collate_s: float
    copied_bytes: int


class Runner(Protocol):
    """One model on one device."""

    device: str

    def run(self, requests: Sequence[Request], size: int) -> Executed:
        """Compute the answers of `requests` in a batch of `size` rows (the surplus is padding); raises what fails."""
        ...

    def staged(self, request: Request) -> None:
        """Told when a request's row stands in staging memory, so that its copy to the device can start."""
        ...

    def warmup(self, request: Request, size: int) -> None:
        """Run a batch of `size` rows like the request's, for whatever only the first run of a size does."""
        ...


class HostRunner:
    """The model on the CPU, or on any device that takes tensors by `.to(device)`."""

    def __init__(self, model: Model, device: str) -> None:
        self.model = model
        self.device = device
        if device == "cpu":
            keep_freed_memory()

    def staged(self, request: Request) -> None:
        """Nothing to do: the device reads staging memory itself, or copies whole batches."""

    def warmup(self, request: Request, size: int) -> None:
        """Run it once."""
        self.run([request], size)

    def run(self, requests: Sequence[Request], size: int) -> Executed:
        """See `Runner.run`; outputs come back as CPU tensors that nothing else writes to."""
        begun_s = time.perf_counter()
        batch, copied_bytes = collate(requests, size)
        collated_s = time.perf_counter()
        with torch.inference_mode():
            output = self.model(self._moved(batch))
            kept = keep(output, batch)
        return Executed(split(kept, len(requests), size), collated_s - begun_s, copied_bytes)

    def _moved(self, batch: Any) -> Any:
        return batch.to(self.device) if self.device != "cpu" and isinstance(batch, torch.Tensor) else batch


def keep(output: Any, batch: Any) -> Any:
    """Make an output the receiver's own: on the CPU, and no view of the staging memory that the batch stands in."""
    if isinstance(output, dict):
        return {name: keep(value, batch) for name, value in output.items()}
    # Numbers and text are nobody's memory; in a list of them, no row needs a look of its own.
    if isinstance(output, list) and _PLAIN.issuperset(map(type, output)):
        return list(output)
    if isinstance(output, (tuple, list)):
        parts = [keep(part, batch) for part in output]
        return tuple(parts) if isinstance(output, tuple) else parts
    if isinstance(output, torch.Tensor):
        return output.clone() if _shares(output, batch) else output.cpu()
    if isinstance(output, np.ndarray) and isinstance(batch, torch.Tensor) and batch.device.type == "cpu":
        return output.copy() if np.may_share_memory(output, batch.numpy()) else output
    return output


def _shares(output: torch.Tensor, batch: Any) -> bool:
    if not isinstance(batch, torch.Tensor) or output.device != batch.device:
        return False
    return output.untyped_storage().data_ptr() == batch.untyped_storage().data_ptr()
