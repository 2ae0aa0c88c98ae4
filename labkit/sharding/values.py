"""Any value as one run of bytes in shared memory: tensors of every shape, dtype and stride, and whatever holds them.

    | lengths | specs: where tensors and arrays lie | body: pickle without them | tensor 0 | tensor 1 | array 2 | ...
                                                                                  each aligned to 64 bytes

The structure (tuples, dicts, None, dataclasses, plain values) is pickled; tensors and arrays are lifted out of it and
copied once, straight into place. Nothing about the value is agreed beforehand: each one says what it is, so shapes
may change from one to the next.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from labkit.sharding.copying import cloned, copy_into

__all__ = ["Parcel", "TensorSpec", "dense_stride", "is_plain", "pack", "unpack", "view"]

_ALIGNMENT = 64
_LENGTHS = struct.Struct("<QQ")
_Spans = tuple[tuple[int, int], ...]
_Specs = tuple["TensorSpec", ...]
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class TensorSpec(NamedTuple):
    """Where a tensor lies, counted from the start of the data, and how it is read."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


class Parcel:
    """A value that is ready to be written: what tells its structure, and the pieces to be copied behind that."""

    def __init__(self, body: bytes, cargo: _Cargo) -> None:
        spans = tuple((offset, array.raw().nbytes) for offset, array in cargo.arrays)
        self._specs, self._body = _packed(tuple(spec for spec, _ in cargo.tensors), spans), body
        self._tensors, self._arrays = cargo.tensors, cargo.arrays
        self._start = _aligned(_LENGTHS.size + len(self._specs) + len(body))
        self.total_bytes = self._start + cargo.size_bytes

    def write(self, memory: memoryview) -> None:
        """Copy everything into `memory`, which must hold `total_bytes`."""
        _LENGTHS.pack_into(memory, 0, len(self._specs), len(self._body))
        told = self._specs + self._body
        memory[_LENGTHS.size : _LENGTHS.size + len(told)] = told
        for spec, tensor in self._tensors:
            copy_into(view(memory, self._start, spec), tensor)
        for offset, array in self._arrays:
            raw = array.raw()
            memory[self._start + offset : self._start + offset + raw.nbytes] = raw


def pack(value: Any) -> Parcel:
    """Take `value` apart for writing; raises what pickle raises for something that cannot be pickled.

    >>> memory = memoryview(bytearray(1024))
    >>> pack({"ids": torch.tensor([[1, 2], [3, 4]]).T, "mask": None}).write(memory)
    >>> unpack(memory)
    {'ids': tensor([[1, 3],
            [2, 4]]), 'mask': None}
    """
    stream = io.BytesIO()
    cargo = _Cargo()
    _Packer(stream, cargo).dump(value)
    return Parcel(stream.getvalue(), cargo)


def unpack(memory: memoryview, own: Callable[[torch.Tensor], torch.Tensor] = cloned) -> Any:
    """Read the value at the start of `memory`.

    `own` turns a view of the memory into a tensor that the receiver may keep: a copy by default, a copy to another
    device for a stage there.
    """
    specs_bytes, body_bytes = _LENGTHS.unpack_from(memory)
    told = bytes(memory[_LENGTHS.size : _LENGTHS.size + specs_bytes + body_bytes])
    specs, spans = _unpacked(told[:specs_bytes])
    start = _aligned(_LENGTHS.size + len(told))
    tensors = [own(view(memory, start, spec)) for spec in specs]
    arrays = [bytearray(memory[start + at : start + at + size]) for at, size in spans]
    return _Unpacker(io.BytesIO(told[specs_bytes:]), tensors, arrays).load()


# One value after the other looks alike, so both directions are remembered.
@lru_cache(maxsize=256)
def _packed(specs: _Specs, spans: _Spans) -> bytes:
    return pickle.dumps((specs, spans), protocol=5)


@lru_cache(maxsize=256)
def _unpacked(told: bytes) -> tuple[_Specs, _Spans]:
    specs, spans = pickle.loads(told)
    return specs, spans


def view(memory: memoryview, start: int, spec: TensorSpec) -> torch.Tensor:
    """Lay a tensor over shared memory, without a copy."""
    if spec.size_bytes == 0:
        return torch.empty(spec.shape, dtype=spec.dtype)
    offset = start + spec.offset
    flat = torch.frombuffer(memory, dtype=spec.dtype, count=math.prod(spec.shape), offset=offset)
    return flat.as_strided(spec.shape, spec.stride)


def is_plain(value: Any) -> bool:
    """Whether `value` is an ordinary dense tensor, whose bytes can be copied; others are pickled whole."""
    return (
        type(value) in _PLAIN
        and value.layout is torch.strided
        and value.device.type != "meta"
        and not (value.is_quantized or value.is_nested)
    )


def dense_stride(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of its copy: its own if it is dense in some order of axes (channels last, say), else contiguous."""
    if tensor.is_contiguous():
        return tuple(tensor.stride())
    return tuple(torch.empty_like(tensor, device="meta").stride())


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT


class _Cargo:
    """Tensors and arrays, laid out one behind the other.

    It does not know the pickler that loads it: as a cycle, both and the tensors would outlive the parcel until the
    next garbage collection.
    """

    def __init__(self) -> None:
        self.tensors: list[tuple[TensorSpec, torch.Tensor]] = []
        self.arrays: list[tuple[int, pickle.PickleBuffer]] = []
        self.size_bytes = 0
        self._seen: dict[int, int] = {}

    def number_of(self, value: torch.Tensor) -> int:
        """Number the tensors; one that occurs twice is carried once and stays one."""
        known = self._seen.get(id(value))
        if known is None:
            known = self._seen[id(value)] = len(self.tensors)
            offset = self._place(value.numel() * value.element_size())
            spec = TensorSpec(offset, value.dtype, tuple(value.shape), dense_stride(value))
            self.tensors.append((spec, value.detach()))
        return known

    def lift(self, buffer: pickle.PickleBuffer) -> None:
        """Take an array's bytes out of the pickle."""
        self.arrays.append((self._place(buffer.raw().nbytes), buffer))

    def _place(self, size_bytes: int) -> int:
        offset = _aligned(self.size_bytes)
        self.size_bytes = offset + size_bytes
        return offset


class _Packer(pickle.Pickler):
    """Pickles structure, and leaves tensors and arrays to the cargo."""

    def __init__(self, stream: io.BytesIO, cargo: _Cargo) -> None:
        super().__init__(stream, protocol=5, buffer_callback=cargo.lift)
        self._cargo = cargo

    def persistent_id(self, value: Any) -> int | None:
        return self._cargo.number_of(value) if is_plain(value) else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, tensors: list[torch.Tensor], arrays: list[bytearray]) -> None:
        super().__init__(stream, buffers=arrays)
        self._tensors = tensors

    def persistent_load(self, number: int) -> torch.Tensor:
        return self._tensors[number]
