"""The slots of a pipeline on a Ray cluster: each holds a reference to a value that lies on some host.

    slot 3: put by the controller       slot 7: what worker 2 answered      slot 9: kept by worker 1 on its GPU
            │                                   │                                   │
            ▼ object store, this host           ▼ object store, worker 2's host     ▼ its tensors, for a two-rank group

The controller owns every value, so none is lost with the worker that computed it; but a large one is lost with the
*host* where it lies. Then its microbatch begins anew with its rows, which the controller has. Slot numbers are never
used again, so what a lost worker may still do disturbs nobody.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.sharding.remote import Remote
from labkit.sharding.values import pack, unpack

if TYPE_CHECKING:
    from labkit.sharding.actor_remote import ActorRemote

__all__ = ["Objects", "Slot", "packed", "unpacked"]

_HERE_S = 60.0


@dataclass(slots=True)
class Slot:
    """`ref` is the value's; with `holder`, it is still on that worker's device and `ref` only says so."""

    ref: Any = None
    holder: ActorRemote | None = None
    size_bytes: int = 0
    here: Any = None


class Objects:
    """Slots by number, filled by the relays of workers; `take` reads what `settle` has brought here, or was put here.

    Its owner locks it, but for `find` and `settle`, which other threads call.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._numbers = count()
        self._slots: dict[int, Slot] = {}
        self.on_drop: Callable[[int], None] = lambda number: None

    @property
    def in_use(self) -> int:
        """How many slots hold something."""
        return len(self._slots)

    def find(self, slot: int) -> Slot | None:
        """What is in `slot`, if it still is."""
        return self._slots.get(slot)

    def reserve(self, size_bytes: int) -> int:
        """Give a new slot."""
        number = next(self._numbers)
        self._slots[number] = Slot(size_bytes=size_bytes)
        return number

    def put(self, value: Any) -> tuple[int, int]:
        """Put `value` into this host's object store; return the slot and the bytes."""
        data = packed(value)
        number = self.reserve(data.nbytes)
        self._slots[number].ref = self._ray.put(data)
        return number, data.nbytes

    def settle(self, number: int, limit_s: float) -> None:
        """Bring a value to this host; raises what Ray raises if it is lost, or takes longer than `limit_s`."""
        slot = self.find(number)
        if slot is not None:
            slot.here = self._ray.get(slot.ref, timeout=limit_s)

    def take(self, slot: int) -> Any:
        """A copy of the value in `slot`, the caller's to keep."""
        held = self._slots[slot]
        data = self._ray.get(held.ref, timeout=_HERE_S) if held.here is None else held.here
        return unpacked(data)

    def free(self, slot: int) -> None:
        """Let Ray have the memory back."""
        del self._slots[slot]
        self.on_drop(slot)

    def show(self, slot: int, remote: Remote) -> None:
        """Nothing to do: a job takes the reference along."""

    def close(self) -> None:
        """Forget everything."""
        self._slots.clear()


def packed(value: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Any value as one array of bytes, which Ray's object store hands on without copying.

    >>> import torch
    >>> unpacked(packed({"rows": torch.ones(2), "mask": None}))
    {'rows': tensor([1., 1.]), 'mask': None}
    """
    parcel = pack(value)
    data = np.empty(parcel.total_bytes, np.uint8)
    parcel.write(data.data)
    return data


def unpacked(data: np.ndarray[Any, Any], own: Callable[[Any], Any] | None = None) -> Any:
    """The value again; `own` as in `values.unpack`."""
    # The object store maps memory read-only, about which torch would warn; but here it is only copied from.
    memory = memoryview((ctypes.c_char * data.nbytes).from_address(data.ctypes.data)).cast("B")
    return unpack(memory, own) if own else unpack(memory)
