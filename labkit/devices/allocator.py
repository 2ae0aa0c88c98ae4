"""Whether the memory of dropped tensors stays in this process, and what it costs when it does not.

torch takes a CPU tensor's memory from malloc. glibc gives large blocks back to the system as soon as they are freed, so
a network that makes and drops tens of megabytes per layer gets new pages for each layer, and the first touch of each
page is a fault (notebook 13 counts and times them). A process that answers requests all day needs that
memory again at once, and does better to keep it.

Threads other than the main one get arenas of their own, in pieces of 64 MiB that are given back whole. So no more
arenas are made from then on, and the engines' threads see to it that they get the main one (`computing.py`).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

__all__ = ["ALLOCATOR_VARIABLES", "glibc", "keep_freed_memory", "trim_freed_memory"]

# For kernels: some of their threads, which the engines' threads may have to share arenas with, begin before any cell.
ALLOCATOR_VARIABLES = {"MALLOC_ARENA_MAX": "1"}

_KEPT_BYTES = 1 << 30
# The parameters' numbers in malloc.h: give free memory back to the system only beyond so many bytes, map only larger
# blocks one by one, make no more arenas than these.
_SETTINGS = {-1: _KEPT_BYTES, -3: _KEPT_BYTES, -8: 1}
# Whoever has tuned the allocator himself keeps his values.
_TUNED = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@cache
def keep_freed_memory() -> bool:
    """Let this process keep up to 1 GiB of freed memory for its next tensors, from now on; return whether it does.

    For the whole process, since the allocator is. It does nothing (and returns False) where the C library is not glibc,
    and where the environment has tuned it already: `MALLOC_TRIM_THRESHOLD_=131072` thus leaves everything as it was.
    The engines call it when they compute on the CPU. Source: mallopt(3).
    """
    library = glibc()
    if library is None or any(name in os.environ for name in _TUNED):
        return False
    return all(library.mallopt(parameter, value) for parameter, value in _SETTINGS.items())


def trim_freed_memory() -> None:
    """Give all freed memory back to the system now, as far as the C library can."""
    library = glibc()
    if library is not None:
        library.malloc_trim(0)


@cache
def glibc() -> Any:
    """The C library of this process if it is glibc, else None."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows has no such thing as "this process"
        return None
    if not hasattr(library, "gnu_get_libc_version"):
        return None
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    return library
