"""Threads whose freed memory stays in the process, like the main thread's.

glibc gives every thread one of several arenas. Those that begin after `keep_freed_memory` share the arenas that there
are by then: one, or more where other threads have taken memory before, as in most servers. All but the main arena give
memory back in pieces of 64 MiB, whatever they are told, so a model whose thread got one of them takes new pages for
every layer, as if nothing were kept. An arena cannot be asked for, only seen; so a thread that got another one stands
aside until one has the main arena.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread

from labkit.devices.allocator import glibc, keep_freed_memory

__all__ = ["in_main_arena", "start_computing"]

# By default there are at most eight arenas for each core.
_MOST_TRIES = 64
# Too large for a block that the thread has at hand from elsewhere.
_PROBE_BYTES = 5000
# A bit in the word before each block.
_NON_MAIN_ARENA = 4


def start_computing(target: Callable[[], None], name: str) -> Thread:
    """Start a daemon thread that calls `target` and keeps freed memory, as far as the C library lets it."""
    kept, aside = keep_freed_memory(), Event()
    try:
        for left in reversed(range(_MOST_TRIES)):
            begun: SimpleQueue[bool] = SimpleQueue()
            last = not (kept and left)
            thread = Thread(target=_try, args=(target, last, begun, aside), name=name, daemon=True)
            thread.start()
            if begun.get():
                break
    finally:
        aside.set()
    return thread


def _try(target: Callable[[], None], anyway: bool, begun: SimpleQueue[bool], aside: Event) -> None:
    if anyway or in_main_arena():
        begun.put(True)
        target()
    else:
        begun.put(False)
        # A thread that ends hands its arena to the next one.
        aside.wait()


def in_main_arena() -> bool:
    """Whether the calling thread takes its memory from the main arena (where there is no glibc, there is but one).

    Source: `chunk_main_arena` in malloc.c of glibc.
    """
    library = glibc()
    if library is None:
        return True
    block = library.malloc(_PROBE_BYTES)
    if not block:
        return True
    size = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    library.free(block)
    return not size & _NON_MAIN_ARENA
