"""A worker process. It may be killed at any moment; when its controller is gone, so is it."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process
from threading import Thread
from typing import Any
from weakref import WeakValueDictionary

import torch

from labkit.devices import keep_freed_memory
from labkit.sharding.job import Attach, LayerRef, Load
from labkit.sharding.lane import Lane
from labkit.sharding.segment import Segment
from labkit.sharding.serving import Serving
from labkit.sharding.values import pack, unpack
from labkit.sharding.weights import load_layer

__all__ = ["Mapped", "main"]

_PR_SET_PDEATHSIG = 1


class Mapped:
    """The shelf of a worker process: segments that the controller has handed over."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        self._pinned: dict[int, Lane] = {}
        self._weights: WeakValueDictionary[Any, torch.Tensor] = WeakValueDictionary()

    def attach(self, attach: Attach, connection: Connection[Any, Any]) -> None:
        """Map it."""
        self._segments[attach.segment] = Segment.receive(attach, connection)

    def drop(self, segments: tuple[int, ...]) -> None:
        """Unmap them."""
        for number in segments:
            segment = self._segments.pop(number)
            if number in self._pinned:
                self._pinned.pop(number).unpin(segment.memory)
            segment.close()

    def layer(self, load: Load, ref: LayerRef, lane: Lane) -> Any:
        """Build it over the segment of weights."""
        return load_layer(self._segments[load.weights].memory, ref, lane.device, self._weights)

    def read(self, slot: int, lane: Lane) -> Any:
        """Copy it out of shared memory."""
        return unpack(self._slot(slot, lane).memory, lane.own)

    def write(self, slot: int, value: Any) -> tuple[bool, int]:
        """Copy it into shared memory, if there is room."""
        parcel, segment = pack(value), self._segments[slot]
        fits = parcel.total_bytes <= segment.size_bytes
        if fits:
            parcel.write(segment.memory)
        return fits, parcel.total_bytes

    def _slot(self, slot: int, lane: Lane) -> Segment:
        segment = self._segments[slot]
        if slot not in self._pinned and lane.pin(segment.memory):
            self._pinned[slot] = lane
        return segment


def main(connection: Connection[Any, Any]) -> None:
    """Run a worker process."""
    # Ctrl-C in a notebook interrupts the kernel's whole process group; the workers go on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_controller()
    # What is loaded stays. Looking through it for garbage would stop a job for a tenth of a second, now and then.
    gc.freeze()
    keep_freed_memory()
    serving = Serving(connection, Mapped(), owns_process=True)
    Thread(target=serving.beat, name="labkit-beat", daemon=True).start()
    serving.run()


def _die_with_controller() -> None:
    """End this process with its controller, also when it hangs or is stopped."""
    parent = parent_process()
    if parent is not None:
        Thread(target=_watch, args=(parent.sentinel,), name="labkit-parent", daemon=True).start()
    if sys.platform == "linux":
        _let_go_of_fork_server()
        # The fork server now ends with the controller, and the kernel kills this process when the server ends.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _let_go_of_fork_server() -> None:
    """Close the copy of the descriptor that keeps a fork server alive; only the controller shall keep it."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    handle, server._forkserver_alive_fd = server._forkserver_alive_fd, None
    server._forkserver_address = None
    if handle is not None:
        os.close(handle)
