"""One piece of memory that several processes see, and that cannot outlive them.

On Linux a segment is a memfd: it has no name, is handed on through a socket, and is gone with the last process that
holds it, however that one ended. It does not count against the size of /dev/shm either (64 MB in most containers).
Elsewhere it is a named `SharedMemory`, which multiprocessing's resource tracker unlinks after a killed controller.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from labkit.sharding.job import Attach, sender

__all__ = ["Segment"]

_NAMELESS = hasattr(os, "memfd_create")


class Segment:
    """`memory` is the whole of it; `number` is what the two sides call it."""

    def __init__(self, number: int, size_bytes: int, store: _Store) -> None:
        self.number = number
        self.size_bytes = size_bytes
        self.memory = memoryview(store.buffer)
        self._store = store

    @classmethod
    def create(cls, number: int, size_bytes: int) -> Segment:
        """Make a new one, filled with zeros."""
        return cls(number, size_bytes, _Nameless.create(size_bytes) if _NAMELESS else _Named.create(size_bytes))

    def hand_to(self, connection: Connection[Any, Any], *, private: bool = False) -> None:
        """Let the process behind `connection` see it: an `Attach`, followed by the memory's handle."""
        sender(connection)(Attach(self.number, self.size_bytes, self._store.name, private))
        self._store.hand_to(connection)

    @classmethod
    def receive(cls, attach: Attach, connection: Connection[Any, Any]) -> Segment:
        """Take what `hand_to` has sent. With `attach.private` what is written stays in this process."""
        if attach.name:
            return cls(attach.segment, attach.size_bytes, _Named(SharedMemory(attach.name), owner=False))
        handle = reduction.recv_handle(connection)
        return cls(attach.segment, attach.size_bytes, _Nameless(handle, attach.size_bytes, attach.private))

    def close(self) -> None:
        """Let go of it; its owner also destroys it. Tensors that still lie over it keep the memory itself alive."""
        with contextlib.suppress(BufferError):
            self.memory.release()
        self._store.close()


class _Nameless:
    """A memfd. The receiver needs the descriptor no longer once it has mapped it."""

    name = ""

    def __init__(self, handle: int, size_bytes: int, private: bool = False, *, owner: bool = False) -> None:
        access = mmap.ACCESS_COPY if private else mmap.ACCESS_WRITE
        self.buffer = mmap.mmap(handle, size_bytes, access=access)
        self._handle = handle if owner else -1
        if not owner:
            os.close(handle)

    @classmethod
    def create(cls, size_bytes: int) -> _Nameless:
        handle = os.memfd_create("labkit-sharding", os.MFD_CLOEXEC)
        os.ftruncate(handle, size_bytes)
        return cls(handle, size_bytes, owner=True)

    def hand_to(self, connection: Connection[Any, Any]) -> None:
        reduction.send_handle(connection, self._handle, 0)

    def close(self) -> None:
        with contextlib.suppress(BufferError):
            self.buffer.close()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class _Named:
    """A `SharedMemory`, found by its name."""

    def __init__(self, shared: SharedMemory, *, owner: bool) -> None:
        self._shared = shared
        self._owner = owner
        self.name = shared.name
        self.buffer = memoryview(shared.buf)  # type: ignore[arg-type]  # None only once it is closed

    @classmethod
    def create(cls, size_bytes: int) -> _Named:
        return cls(SharedMemory(create=True, size=size_bytes), owner=True)

    def hand_to(self, connection: Connection[Any, Any]) -> None:
        """Nothing to do: the name says it all."""

    def close(self) -> None:
        with contextlib.suppress(BufferError):
            self.buffer.release()
            self._shared.close()
        if self._owner:
            self._owner = False
            self._shared.unlink()


_Store = _Nameless | _Named
