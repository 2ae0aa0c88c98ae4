"""The layers of a model in one shared segment, from which any worker takes any of them.

    | layer 0: pickle without tensors | layer 1 | ... | tensor | tensor | tensor | ...

The weights are copied once, into memory that every worker maps. A worker that replaces a lost one maps them again:
nothing is sent, nothing is read from a file. The mapping is private (copy on write), so a stage that writes to its own
buffers writes to a copy of that page. Weights that layers share are stored once, and are one tensor per worker.

The user's module is pickled, never changed. What lives in a notebook or in the main script has no module that a worker
could import; `cloudpickle`, where it is installed, sends its code along.
"""

from __future__ import annotations

import importlib
import io
import pickle
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from labkit.errors import SettingError
from labkit.sharding.job import LayerRef
from labkit.sharding.segment import Segment
from labkit.sharding.state import inner
from labkit.sharding.values import TensorSpec, dense_stride, is_plain, view

__all__ = ["Weights", "load_layer"]

_ALIGNMENT = 64


class Weights:
    """Packed layers: `segment` holds them, `refs[k]` says where layer k is, `specs[k]` where its tensors are."""

    def __init__(
        self,
        layers: Sequence[Any],
        dtypes: Sequence[torch.dtype | None],
        make_segment: Callable[[int], Segment],
    ) -> None:
        table = _Table()
        bodies = [_pickled(number, layer, dtypes[number], table) for number, layer in enumerate(layers)]
        self.specs = tuple(specs for _, specs in bodies)
        starts = [table.place(len(body)) for body, _ in bodies]
        self.segment = make_segment(max(table.end, 1))
        for spec, tensor in table.tensors:
            view(self.segment.memory, 0, spec).copy_(tensor)
        self.refs = tuple(
            LayerRef(number, start, len(body), sum(spec.size_bytes for spec in specs), dtypes[number])
            for number, ((body, specs), start) in enumerate(zip(bodies, starts, strict=True))
        )
        for ref, (body, _) in zip(self.refs, bodies, strict=True):
            self.segment.memory[ref.offset : ref.offset + ref.size_bytes] = body


def load_layer(
    memory: memoryview, ref: LayerRef, device: torch.device, cache: weakref.WeakValueDictionary[Any, torch.Tensor]
) -> Any:
    """Build layer `ref` from a mapped segment, its weights on `device`; `cache` holds those that are there already."""
    stream = io.BytesIO(memory[ref.offset : ref.offset + ref.size_bytes])
    layer = _LayerUnpickler(stream, memory, device, cache).load()
    module = inner(layer)
    if isinstance(module, torch.nn.Module):
        module.eval()
    return layer


class _Table:
    """Lays tensors out one behind the other; the same bytes of the same storage only once."""

    def __init__(self) -> None:
        self.tensors: list[tuple[TensorSpec, torch.Tensor]] = []
        self.end = 0
        self._known: dict[tuple[Any, ...], TensorSpec] = {}

    def add(self, tensor: torch.Tensor, dtype: torch.dtype) -> TensorSpec:
        storage, shape = tensor.untyped_storage(), tuple(tensor.shape)
        identity = (storage.data_ptr(), tensor.storage_offset(), shape, tensor.stride(), tensor.dtype, dtype)
        if not tensor.numel() or identity not in self._known:
            stride = dense_stride(tensor)
            spec = TensorSpec(self.place(tensor.numel() * dtype.itemsize), dtype, shape, stride)
            self._known[identity] = spec
            self.tensors.append((spec, tensor.detach()))
        return self._known[identity]

    def place(self, size_bytes: int) -> int:
        offset = -(-self.end // _ALIGNMENT) * _ALIGNMENT
        self.end = offset + size_bytes
        return offset


def _pickled(number: int, layer: Any, dtype: torch.dtype | None, table: _Table) -> tuple[bytes, list[TensorSpec]]:
    """Pickle a layer, with `dtype` for its parameters and buffers; return the pickle and where its tensors lie."""
    registered = {id(tensor) for tensor in _registered(layer)}
    specs: list[TensorSpec] = []

    def lift(value: Any) -> Any:
        if not is_plain(value):
            return None
        ours = id(value) in registered
        spec = table.add(value, dtype if dtype and ours and value.is_floating_point() else value.dtype)
        specs.append(spec)
        return spec, ours, isinstance(value, torch.nn.Parameter)

    stream = io.BytesIO()
    try:
        _layer_pickler(stream, lift).dump(layer)
    except Exception as error:
        kind = type(error).__name__
        raise SettingError(
            f"stage {number} ({type(layer).__name__}) cannot be sent to a worker process: {kind}: {error}",
            "Define it at the top level of a module, install cloudpickle, or use carrier='thread'.",
        ) from error
    return stream.getvalue(), specs


def _registered(layer: Any) -> Iterable[torch.Tensor]:
    module = inner(layer)
    if isinstance(module, torch.nn.Module):
        yield from module.parameters()
        yield from module.buffers()


def _layer_pickler(stream: io.BytesIO, lift: Callable[[Any], Any]) -> Any:
    try:
        base = importlib.import_module("cloudpickle").Pickler
    except ImportError:
        base = pickle.Pickler
    # Picklers look for this method on their class, so one that lifts for us is a class of its own.
    kind = type("LayerPickler", (base,), {"persistent_id": lambda self, value: lift(value)})
    return kind(stream, protocol=5)


class _LayerUnpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, memory: memoryview, device: torch.device, cache: Any) -> None:
        super().__init__(stream)
        self._memory, self._device, self._cache = memory, device, cache

    def persistent_load(self, name: tuple[TensorSpec, bool, bool]) -> torch.Tensor:
        """Return a weight; a layer that was loaded earlier may have it already."""
        known: torch.Tensor | None = self._cache.get(name)
        if known is not None:
            return known
        spec, registered, parameter = name
        tensor = view(self._memory, 0, spec)
        if registered:
            tensor = tensor.to(self._device)
        loaded = torch.nn.Parameter(tensor, requires_grad=False) if parameter else tensor
        self._cache[name] = loaded
        return loaded
