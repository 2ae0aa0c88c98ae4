"""A worker's ends of all its wires."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import torch

from labkit.sharding.lost import Lost
from labkit.sharding.wire import Announced, Group, Wire, assemble_value, listen

__all__ = ["Exchange"]

Tensors = list[torch.Tensor]


class Exchange:
    """Sends in a thread for each wire, receives in the thread that asks."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._lock = Lock()
        self._store: Any = None
        self._senders: dict[str, _Sender] = {}
        self._groups: dict[str, Group] = {}
        self._cut: set[str] = set()

    def listen(self) -> int:
        """Open this worker's store; return its port."""
        self._store = listen(self._host)
        return int(self._store.port)

    def send(self, wire: Wire, order: int, tensors: Tensors | None) -> None:
        """Send `tensors` as number `order` on `wire`, soon (None: there is nothing under this number)."""
        with self._lock:
            if wire.name in self._cut:
                raise Lost(f"the wire {wire.name} has been cut")
            if wire.name not in self._senders:
                self._senders[wire.name] = _Sender(lambda: Group(wire, 0, self._host), wire.name)
            self._senders[wire.name].put(order, tensors)

    def receive(self, wire: Wire, announced: Announced, device: torch.device, limit_s: float) -> Any:
        """Receive the next value on `wire`; raises `Lost`, and then the wire is cut."""
        if wire.name in self._cut:
            raise Lost(f"the wire {wire.name} has been cut")
        try:
            if wire.name not in self._groups:
                self._groups[wire.name] = Group(wire, 1, self._host)
            tensors = self._groups[wire.name].receive(announced, device, limit_s)
        except torch.OutOfMemoryError:
            self.cut(wire.name)
            raise
        except Exception as error:
            self.cut(wire.name)
            raise Lost(f"nothing came over the wire {wire.name}: {type(error).__name__}: {error}") from error
        return assemble_value(announced, tensors)

    def cut(self, name: str) -> None:
        """Use this wire no more, in either direction."""
        with self._lock:
            self._cut.add(name)
            sender, group = self._senders.pop(name, None), self._groups.pop(name, None)
        if sender is not None:
            sender.close()
        if group is not None:
            group.close()


class _Sender:
    """Sends in order what may be put in out of order, from a thread of its own."""

    def __init__(self, make: Callable[[], Group], name: str) -> None:
        self._make = make
        self._group: Group | None = None
        self._early: dict[int, Tensors | None] = {}
        self._next = 0
        self._due: SimpleQueue[Tensors | None] = SimpleQueue()
        Thread(target=self._run, name=f"labkit-wire-{name}", daemon=True).start()

    def put(self, order: int, tensors: Tensors | None) -> None:
        self._early[order] = tensors
        while self._next in self._early:
            due = self._early.pop(self._next)
            self._next += 1
            if due:
                self._due.put(due)

    def close(self) -> None:
        self._due.put(None)
        if self._group is not None:
            self._group.close()

    def _run(self) -> None:
        try:
            self._group = self._make()
            with torch.inference_mode():
                while (tensors := self._due.get()) is not None:
                    self._group.send(tensors)
        except Exception:
            # The reader hears nothing more, says so, and the wire is cut.
            return
