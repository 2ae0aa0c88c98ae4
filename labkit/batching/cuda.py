"""The model on a CUDA device: copies beside computation, and one graph per allowed batch size.

A large row is copied to the device as soon as it is prepared, on a copy stream, into a mirror of its staging ring. When
a batch is formed, its rows are there already, side by side: late binding costs no waiting for copies. Small rows go
over in one copy per batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from labkit.batching.collate import collate, split
from labkit.batching.pool import StagingRing, side_by_side
from labkit.batching.request import Request
from labkit.batching.runner import Executed, keep

__all__ = ["CudaRunner", "GraphedModel"]

# Below this a copy costs more in launching than in bytes, and one copy per batch is cheaper than one per row.
_EARLY_ROW_BYTES = 64 * 1024

Model = Callable[[Any], Any]


class GraphedModel:
    """Replays a captured CUDA graph for each batch shape that was warmed up; runs the model as it is for others."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._graphs: dict[tuple[torch.Size, torch.dtype], tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}

    def capture(self, batch: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """Record the model's work for this shape; a model whose work cannot be captured stays as it is."""
        entry, graph = batch.clone(), torch.cuda.CUDAGraph()
        for _ in range(3):
            self._model(entry)
        stream.synchronize()
        try:
            with torch.cuda.graph(graph, stream=stream):
                result = self._model(entry)
        except RuntimeError:
            torch.cuda.synchronize()
            return
        if isinstance(result, torch.Tensor):
            self._graphs[batch.shape, batch.dtype] = (graph, entry, result)

    def __call__(self, batch: Any) -> Any:
        """The model's output; from a graph it must be read before the next call."""
        found = self._graphs.get((batch.shape, batch.dtype)) if isinstance(batch, torch.Tensor) else None
        if found is None:
            return self._model(batch)
        graph, entry, result = found
        entry.copy_(batch, non_blocking=True)
        graph.replay()
        return result


class CudaRunner:
    """One model on one CUDA device, with a stream for its work and one for copies to the device."""

    def __init__(self, model: Model, device: str, *, upload_early: bool) -> None:
        self.device = device
        self._model = GraphedModel(model)
        self._upload_early = upload_early
        self._compute = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copy = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # Weak, so that a shape which has not come for long does not keep its mirror.
        self._mirrors: WeakKeyDictionary[StagingRing, torch.Tensor] = WeakKeyDictionary()

    def staged(self, request: Request) -> None:
        """Start copying a large row to its place in the mirror."""
        slot = request.slot
        if not self._upload_early or slot is None or slot.index < 0 or slot.ring.row_bytes < _EARLY_ROW_BYTES:
            return
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._copy):
            self._mirror(slot.ring)[slot.index].copy_(slot.tensor, non_blocking=True)
            event.record(self._copy)
        slot.arrived = event

    def _mirror(self, ring: StagingRing) -> torch.Tensor:
        mirror = self._mirrors.get(ring)
        if mirror is None:
            mirror = self._mirrors[ring] = torch.empty_like(ring.block, device=self.device, pin_memory=False)
        return mirror

    def warmup(self, request: Request, size: int) -> None:
        """Run a batch of `size` rows and capture its graph."""
        batch, _ = self._on_device([request], size)
        if isinstance(batch, torch.Tensor):
            with torch.inference_mode(), torch.cuda.stream(self._compute):
                self._model.capture(batch, self._compute)
        self.run([request], size)

    def run(self, requests: Sequence[Request], size: int) -> Executed:
        """See `Runner.run`; returns when the answers are on the host."""
        begun_s = time.perf_counter()
        with torch.inference_mode(), torch.cuda.stream(self._compute):
            batch, copied_bytes = self._on_device(requests, size)
            collated_s = time.perf_counter()
            # Coming to the host waits for the computation, so the time of the step is the device's own.
            output = keep(self._model(batch), None)
            self._compute.synchronize()
        return Executed(split(output, len(requests), size), collated_s - begun_s, copied_bytes)

    def _on_device(self, requests: Sequence[Request], size: int) -> tuple[Any, int]:
        mirrored = self._mirrored(requests) if size == len(requests) else None
        if mirrored is not None:
            return mirrored, 0
        batch, copied_bytes = collate(requests, size)
        if isinstance(batch, torch.Tensor):
            batch = batch.to(self.device, non_blocking=True)
        return batch, copied_bytes

    def _mirrored(self, requests: Sequence[Request]) -> torch.Tensor | None:
        """The batch as a view of the mirror, if its rows were copied early and lie side by side."""
        slots = [request.slot for request in requests if request.slot is not None]
        events = [slot.arrived for slot in slots if slot.arrived is not None]
        if len(events) < len(requests) or not side_by_side(slots):
            return None
        for event in events:
            self._compute.wait_event(event)
        first = slots[0]
        return self._mirror(first.ring)[first.index : first.index + len(slots)]
