"""One hop through labkit's ring of shared-memory slots, to a real worker, whose only layer hands its input back."""

from __future__ import annotations

from itertools import count
from typing import Any

import torch

from labkit.sharding.hand import Hand
from labkit.sharding.job import Done, Job, Key, Load, Loaded, Pong, Tune, receiver
from labkit.sharding.nursery import hatch
from labkit.sharding.ring import Ring
from labkit.sharding.weights import Weights

from .hop import serve_hop

__all__ = ["RingHop", "main"]


class RingHop:
    """A worker, and the controller's side of the ring; nothing else of the engine."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._numbers = count()
        self._hand = Hand(hatch("hop"))
        self._ring = Ring()
        self._weights = Weights([torch.nn.Identity()], [None], self._ring.new_segment)
        connection = self._hand.remote.connection
        self._weights.segment.hand_to(connection, private=True)
        self._receive = receiver(connection)
        self._hand.tell(Tune(threads=1, slowdown=1.0))
        self._hand.tell(Load(self._weights.refs, "cpu", self._weights.segment.number))
        self._await(Loaded)

    def value(self, size_bytes: int, times: int) -> Any:
        """A tensor."""
        return torch.ones(size_bytes // 4)

    def bounce(self, value: Any) -> Any:
        """Into a slot, out of it and into another by the worker, and out of that."""
        source, size_bytes = self._ring.put(value)
        target = self._ring.reserve(size_bytes)
        self._hand.show(self._ring, source, target)
        self._hand.tell(Job(Key(next(self._numbers), 0, 0, 0), 0, 1, source, target))
        self._await(Done)
        back = self._ring.take(target)
        self._ring.free(source)
        self._ring.free(target)
        return back

    def _await(self, kind: type[Done | Loaded]) -> None:
        """Wait for an answer of that kind; signs of life come in between."""
        while not isinstance(message := self._receive(), kind):
            if not isinstance(message, Pong):
                raise TypeError(f"the worker sent {message!r}")

    def close(self) -> None:
        """End the worker, and the ring."""
        self._hand.remote.close(1.0)
        self._weights.segment.close()
        self._ring.close()


def main() -> None:
    """Answer the bench's requests."""
    serve_hop(RingHop)
