"""Workers in threads of this process: nothing is copied, GPUs hand tensors to each other, and nothing can be killed.

torch lets go of the interpreter while it computes, so stages overlap. A value passes from stage to stage by reference;
on an accelerator each stage has its own stream, and a tensor of another device is fetched by a peer copy. A thread
that hangs cannot be ended: it is left alone, and a new one takes its place.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
from collections.abc import Callable, Sequence
from itertools import count
from multiprocessing.connection import Connection
from threading import Event
from typing import Any

import torch

from labkit.devices import start_computing
from labkit.sharding.job import Attach, LayerRef, Load, Misbehave, sender
from labkit.sharding.lane import Lane, kept
from labkit.sharding.nested import leaves, map_leaves
from labkit.sharding.remote import Remote
from labkit.sharding.serving import Serving
from labkit.sharding.state import Stateful, inner

__all__ = ["Cabinet", "ThreadRemote", "start_thread"]

_EMPTY = object()


class Cabinet:
    """The slots of one process: what a `Ring` is for worker processes, and at the same time every worker's shelf."""

    def __init__(self, layers: Sequence[Any], dtypes: Sequence[torch.dtype | None]) -> None:
        self._layers, self._dtypes = layers, dtypes
        self._numbers = count()
        self._values: dict[int, Any] = {}
        self._tensors: dict[tuple[int, str, torch.dtype], torch.Tensor] = {}
        self.on_drop: Callable[[int], None] = lambda number: None
        self.refs = tuple(LayerRef(number, 0, 0, 0, dtypes[number]) for number in range(len(layers)))

    @property
    def in_use(self) -> int:
        """How many slots hold something."""
        return len(self._values)

    def reserve(self, size_bytes: int) -> int:
        """Give a new slot; numbers are never used again, so a thread that was given up on can do no harm."""
        slot = next(self._numbers)
        self._values[slot] = _EMPTY
        return slot

    def put(self, value: Any) -> tuple[int, int]:
        """Keep `value`; return the slot and its bytes."""
        slot = self.reserve(0)
        self._values[slot] = value
        return slot, _bytes_of(value)

    def take(self, slot: int) -> Any:
        """The value in `slot`; a tensor that torch has marked as not to be changed is copied."""
        return map_leaves(kept, self._values[slot])

    def free(self, slot: int) -> None:
        """Forget the value in `slot`; the slot no longer exists."""
        del self._values[slot]
        self.on_drop(slot)

    def close(self) -> None:
        """Forget everything."""
        self._values.clear()

    def show(self, slot: int, remote: Remote) -> None:
        """Nothing to do: all is here."""

    def attach(self, attach: Attach, connection: Connection[Any, Any]) -> None:
        """Nothing to do: all is here."""

    def drop(self, segments: tuple[int, ...]) -> None:
        """Nothing to do: all is here."""

    def read(self, slot: int, lane: Lane) -> Any:
        """The value itself."""
        return self._values[slot]

    def write(self, slot: int, value: Any) -> tuple[bool, int]:
        """Keep `value`, unless its slot has been given up."""
        if slot in self._values:
            self._values[slot] = value
        return True, _bytes_of(value)

    def layer(self, load: Load, ref: LayerRef, lane: Lane) -> Any:
        """A copy of the layer that shares its parameters, where device and dtype allow it."""
        layer = self._layers[ref.layer]
        module = inner(layer)
        if not isinstance(module, torch.nn.Module):
            return layer
        memo: dict[int, Any] = {id(one): self._at(one, ref.dtype, lane) for one in module.parameters()}
        memo |= {id(one): self._moved(one, ref.dtype, lane).clone() for one in module.buffers()}
        copied = copy.deepcopy(module, memo).eval()
        return Stateful(copied) if isinstance(layer, Stateful) else copied

    def _at(self, parameter: torch.Tensor, dtype: torch.dtype | None, lane: Lane) -> torch.Tensor:
        """The parameter on the lane's device, one for all layers and workers there."""
        wanted = dtype if dtype and parameter.is_floating_point() else parameter.dtype
        name = (id(parameter), str(lane.device), wanted)
        if name not in self._tensors:
            moved = self._moved(parameter, dtype, lane)
            self._tensors[name] = torch.nn.Parameter(moved, requires_grad=False)
        return self._tensors[name]

    def _moved(self, tensor: torch.Tensor, dtype: torch.dtype | None, lane: Lane) -> torch.Tensor:
        wanted = dtype if dtype and tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(lane.device, wanted)


class ThreadRemote:
    """A worker thread and the controller's end of its pipe."""

    beats = blameless = False

    def __init__(self, shelf: Cabinet, name: str) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.pid = os.getpid()
        self._send = sender(self.connection)
        self._released = Event()
        serving = _ThreadServing(theirs, shelf, self._released)
        self._thread = start_computing(serving.live, name)

    def kill(self) -> None:
        """Give it up: its pipe ends, and it ends itself when it next looks there."""
        self._released.set()
        self.connection.close()

    def hang(self) -> None:
        """Let it wait until it is given up."""
        self._send(Misbehave("hang"))

    def die(self) -> None:
        """Let it end at its next message."""
        self._send(Misbehave("kill"))

    def ending(self) -> str:
        """In words."""
        return f"thread {self._thread.name} ended"

    def close(self, timeout_s: float) -> None:
        """See `Remote`; a thread that computes on is left to its work."""
        self.kill()
        self._thread.join(timeout_s)


def start_thread(shelf: Cabinet) -> Callable[[str], ThreadRemote]:
    """Return the function that starts a worker thread under a name."""
    return lambda name: ThreadRemote(shelf, name)


class _ThreadServing(Serving):
    def __init__(self, connection: Connection[Any, Any], shelf: Cabinet, released: Event) -> None:
        super().__init__(connection, shelf, owns_process=False)
        self._released = released

    def live(self) -> None:
        try:
            self.run()
        except SystemExit:
            return
        finally:
            self._connection.close()

    def misbehave(self, how: str) -> None:
        if how == "kill":
            raise SystemExit
        self._released.wait()


def _bytes_of(value: Any) -> int:
    return sum(int(leaf.nbytes) for leaf in leaves(value))
