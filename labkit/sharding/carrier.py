"""What carries workers and values: processes with shared memory, threads, or actors on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from labkit.devices import keep_freed_memory
from labkit.errors import UnknownName
from labkit.sharding.cluster import Cluster
from labkit.sharding.hand import Store
from labkit.sharding.job import LayerRef
from labkit.sharding.nursery import hatch
from labkit.sharding.patience import Patience
from labkit.sharding.remote import Remote
from labkit.sharding.ring import Ring
from labkit.sharding.threads import Cabinet, ThreadRemote
from labkit.sharding.weights import Weights

__all__ = ["Carrier", "Processes", "Threads", "make_carrier", "patience_for"]


class Carrier(Protocol):
    """Starts workers, and keeps layers and values where they can reach them."""

    @property
    def store(self) -> Store:
        """Where values lie between stages."""
        ...

    @property
    def refs(self) -> tuple[LayerRef, ...]:
        """Where each layer lies."""
        ...

    @property
    def weights(self) -> int:
        """The number of the segment with the layers."""
        ...

    def on_drop(self, tell: Callable[[int], None]) -> None:
        """Have `tell` called with each slot that no longer exists."""
        ...

    def start(self, name: str) -> Remote:
        """Start a worker; it is ready to be told things when this returns."""
        ...

    def close(self) -> None:
        """Give all memory back."""
        ...


class Processes:
    """Worker processes; values in shared-memory slots, layers in one shared segment."""

    def __init__(self, layers: Sequence[Any], dtypes: Sequence[torch.dtype | None]) -> None:
        keep_freed_memory()
        self.store = Ring()
        self._packed = Weights(layers, dtypes, self.store.new_segment)
        self.refs = self._packed.refs
        self.weights = self._packed.segment.number

    def on_drop(self, tell: Callable[[int], None]) -> None:
        """See `Carrier`."""
        self.store.on_drop = tell

    def start(self, name: str) -> Remote:
        """See `Carrier`."""
        remote = hatch(name)
        self._packed.segment.hand_to(remote.connection, private=True)
        return remote

    def close(self) -> None:
        """See `Carrier`."""
        self.store.close()
        self._packed.segment.close()


class Threads:
    """Worker threads; values and layers are passed by reference."""

    weights = -1

    def __init__(self, layers: Sequence[Any], dtypes: Sequence[torch.dtype | None]) -> None:
        keep_freed_memory()
        self.store = Cabinet(layers, dtypes)
        self.refs = self.store.refs

    def on_drop(self, tell: Callable[[int], None]) -> None:
        """See `Carrier`."""
        self.store.on_drop = tell

    def start(self, name: str) -> Remote:
        """See `Carrier`."""
        return ThreadRemote(self.store, name)

    def close(self) -> None:
        """See `Carrier`."""
        self.store.close()


def make_carrier(
    wanted: str | Cluster, layers: Sequence[Any], dtypes: Sequence[torch.dtype | None], workers: int
) -> Carrier:
    """Make the carrier called "process", "thread" or "ray", for so many workers at first; raises `UnknownName`."""
    if wanted == "process":
        return Processes(layers, dtypes)
    if wanted == "thread":
        return Threads(layers, dtypes)
    cluster = _cluster(wanted)
    if cluster is not None:
        from labkit.sharding.actors import Actors

        return Actors(layers, dtypes, cluster, workers)
    raise UnknownName.among("carrier", str(wanted), ["process", "thread", "ray"])


def patience_for(wanted: str | Cluster) -> Patience:
    """The limits of waiting that suit a carrier."""
    cluster = _cluster(wanted)
    return Patience() if cluster is None else cluster.patience


def _cluster(wanted: str | Cluster) -> Cluster | None:
    """The cluster that is meant, if one is."""
    if isinstance(wanted, Cluster):
        return wanted
    return Cluster() if wanted == "ray" else None
