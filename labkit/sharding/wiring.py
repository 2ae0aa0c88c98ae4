"""Which wires there are between workers, as the controller knows it."""

from __future__ import annotations

from itertools import count
from threading import Lock
from typing import Protocol

from labkit.sharding.wire import Wire

__all__ = ["Ending", "Wiring"]


class Ending(Protocol):
    """A worker that wires begin and end at."""

    number: int
    backend: str
    address: tuple[str, int]


class Wiring:
    """Names wires and counts what goes over them, so that both ends agree on the order. Any thread may ask.

    >>> class Worker:
    ...     def __init__(self, number): self.number, self.backend, self.address = number, "gloo", ("10.0.0.1", 5000)
    >>> wiring, first, second = Wiring(), Worker(3), Worker(7)
    >>> [wiring.next(first, second)[0].name, wiring.next(first, second)[1]]
    ['3>7/0', 1]
    >>> wiring.cut(wiring.next(first, second)[0]); wiring.next(first, second)[0].name
    '3>7/1'
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._wires: dict[tuple[int, int], tuple[Wire, count[int]]] = {}
        self._epochs: dict[tuple[int, int], int] = {}

    def next(self, sender: Ending, receiver: Ending) -> tuple[Wire, int]:
        """The wire from one to the other, and the number of the next value on it."""
        pair = sender.number, receiver.number
        with self._lock:
            if pair not in self._wires:
                name = f"{pair[0]}>{pair[1]}/{self._epochs.get(pair, 0)}"
                self._wires[pair] = Wire(name, sender.backend, *sender.address), count()
            wire, order = self._wires[pair]
            return wire, next(order)

    def cut(self, wire: Wire) -> None:
        """Never use this one again."""
        with self._lock:
            for pair, (known, _) in list(self._wires.items()):
                if known == wire:
                    del self._wires[pair]
                    self._epochs[pair] = self._epochs.get(pair, 0) + 1

    def forget(self, number: int) -> list[tuple[int, Wire]]:
        """Drop all wires of a worker that is lost; return who is at their other ends."""
        with self._lock:
            gone = [(pair, wire) for pair, (wire, _) in self._wires.items() if number in pair]
            for pair, _ in gone:
                del self._wires[pair]
            return [(pair[0] if pair[1] == number else pair[1], wire) for pair, wire in gone]
