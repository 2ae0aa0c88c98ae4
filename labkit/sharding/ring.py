"""The slots through which values travel, owned by the controller, mapped by every worker.

    controller:  [slot 3: input of stage 0] [slot 7: output of stage 0 = input of stage 1] [slot 5: free] ...

A value stays in its slot until the next stage has answered for it. So a stage that is lost costs one retry of that
stage: what it was given is still there. A slot is a segment; when a value is larger than any free slot, a larger one
takes the place of a free one, so the ring has as many slots as were ever in use at once, and each grows as needed.
The slot that was freed last is taken first, for its pages are in the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from labkit.sharding.remote import Remote
from labkit.sharding.segment import Segment
from labkit.sharding.values import pack, unpack

__all__ = ["Ring"]

_LEAST_BYTES = 64 * 1024


class Ring:
    """Slots by number. `on_drop` is told the number of each segment that no longer exists. Its owner locks it.

    >>> ring = Ring()
    >>> slot, _ = ring.put({"rows": [1, 2]})
    >>> ring.take(slot), len(ring)
    ({'rows': [1, 2]}, 1)
    >>> ring.free(slot); ring.close()
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._slots: dict[int, Segment] = {}
        self._free: list[Segment] = []
        self.on_drop: Callable[[int], None] = lambda number: None

    def __len__(self) -> int:
        """How many slots there are."""
        return len(self._slots)

    @property
    def in_use(self) -> int:
        """How many slots hold something."""
        return len(self._slots) - len(self._free)

    def show(self, slot: int, remote: Remote) -> None:
        """Let a worker process map a slot."""
        self._slots[slot].hand_to(remote.connection)

    def new_segment(self, size_bytes: int) -> Segment:
        """Make a segment that is no slot (for weights), with a number that no slot has."""
        return Segment.create(next(self._numbers), size_bytes)

    def reserve(self, size_bytes: int) -> int:
        """Give a free slot of at least `size_bytes`, the smallest that will do."""
        fitting = [slot for slot in reversed(self._free) if slot.size_bytes >= size_bytes]
        if fitting:
            slot = min(fitting, key=lambda one: one.size_bytes)
            self._free.remove(slot)
            return slot.number
        if self._free:
            self._drop(min(self._free, key=lambda one: one.size_bytes))
        slot = Segment.create(next(self._numbers), _rounded(size_bytes))
        self._slots[slot.number] = slot
        return slot.number

    def put(self, value: Any) -> tuple[int, int]:
        """Write `value` into a free slot; return the slot and the bytes written."""
        parcel = pack(value)
        slot = self.reserve(parcel.total_bytes)
        parcel.write(self._slots[slot].memory)
        return slot, parcel.total_bytes

    def take(self, slot: int) -> Any:
        """A copy of the value in `slot`, the caller's to keep."""
        return unpack(self._slots[slot].memory)

    def free(self, slot: int) -> None:
        """Let others have `slot`."""
        self._free.append(self._slots[slot])

    def close(self) -> None:
        """Destroy all slots."""
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()
        self._free.clear()

    def _drop(self, slot: Segment) -> None:
        self._free.remove(slot)
        del self._slots[slot.number]
        slot.close()
        self.on_drop(slot.number)


def _rounded(size_bytes: int) -> int:
    """Round up to a power of two, so that small differences in shape do not make new slots."""
    return max(_LEAST_BYTES, 1 << (size_bytes - 1).bit_length())
