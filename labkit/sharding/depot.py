"""The shelf of a worker on a Ray cluster: values that were brought to it, outcomes that somebody waits for."""

from __future__ import annotations

import importlib
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch

from labkit.sharding.exchange import Exchange
from labkit.sharding.job import Attach, LayerRef, Load
from labkit.sharding.lane import Lane
from labkit.sharding.lost import Lost
from labkit.sharding.nested import leaves
from labkit.sharding.objects import packed, unpacked
from labkit.sharding.pieces import Pieces
from labkit.sharding.weights import load_layer
from labkit.sharding.wire import Announced, Wire, announce, assemble_value

__all__ = ["Depot", "Source"]


class Source(NamedTuple):
    """Where the value in `slot` is: behind a reference (`refs`, which Ray must not resolve by itself), or here.

    With a `wire` the reference is to what announces it, and its tensors come over the wire.
    """

    slot: int
    refs: tuple[Any, ...]
    limit_s: float
    wire: Wire | None = None


class _Kept(NamedTuple):
    announced: Announced
    tensors: list[torch.Tensor]


class Depot:
    """What a `Mapped` is for worker processes; other threads bring values and wait for outcomes."""

    def __init__(self, pieces: Pieces, exchange: Exchange) -> None:
        self._pieces, self._exchange = pieces, exchange
        self._weights: WeakValueDictionary[Any, torch.Tensor] = WeakValueDictionary()
        self._brought: dict[int, tuple[Source, Any]] = {}
        self._outcomes: dict[int, tuple[Future[Any], bool]] = {}
        self._kept: dict[int, _Kept] = {}

    def bring(self, source: Source, value: Any) -> None:
        """Have `value`, or a `Lost`, at hand for the job that will read it."""
        self._brought[source.slot] = source, value

    def expect(self, slot: int, *, keep: bool) -> Future[Any]:
        """Return the future of what will be written into `slot`: its bytes, or None if it is kept or failed."""
        outcome: Future[Any] = Future()
        self._outcomes[slot] = outcome, keep
        return outcome

    def give_up(self, slot: int) -> None:
        """Nothing will be written into `slot`."""
        outcome, _ = self._outcomes.pop(slot, (None, False))
        if outcome is not None:
            outcome.set_result(None)

    def fetch(self, slot: int) -> Any:
        """The bytes of a value that is kept here; raises `Lost`."""
        return packed(assemble_value(*self._at(slot)))

    def send(self, wire: Wire, order: int, slot: int) -> Announced:
        """Begin to send a value that is kept here; raises `Lost`."""
        kept = self._kept.get(slot)
        self._exchange.send(wire, order, kept.tensors if kept else None)
        return self._at(slot).announced

    def attach(self, attach: Attach, connection: Connection[Any, Any]) -> None:
        """Nothing to do: there are no segments."""

    def drop(self, segments: tuple[int, ...]) -> None:
        """Let go of values that were kept here."""
        for slot in segments:
            self._kept.pop(slot, None)

    def layer(self, load: Load, ref: LayerRef, lane: Lane) -> Any:
        """Build it, after fetching the pieces that are not here yet."""
        for piece, refs in self._pieces.wanted(ref.layer):
            piece.lay(self._pieces.memory, importlib.import_module("ray").get(refs[0]))
        return load_layer(self._pieces.memory, ref, lane.device, self._weights)

    def read(self, slot: int, lane: Lane) -> Any:
        """The value, on the lane's device; raises `Lost`."""
        source, value = self._brought.pop(slot)
        if isinstance(value, Lost):
            if source.wire is not None:
                self._exchange.cut(source.wire.name)
            raise value
        if source.wire is not None:
            return self._exchange.receive(source.wire, value, lane.device, source.limit_s)
        return unpacked(value, lane.own) if source.refs else assemble_value(*self._at(slot))

    def write(self, slot: int, value: Any) -> tuple[bool, int]:
        """Hand the value to whoever waits for it; there is always room."""
        keep = self._outcomes[slot][1]
        if keep:
            self._kept[slot] = _Kept(*announce(value))
        data = None if keep else packed(value)
        self._outcomes.pop(slot)[0].set_result(data)
        return True, sum(int(leaf.nbytes) for leaf in leaves(value)) if data is None else data.nbytes

    def _at(self, slot: int) -> _Kept:
        if slot not in self._kept:
            raise Lost(f"slot {slot} is not here any more")
        return self._kept[slot]
