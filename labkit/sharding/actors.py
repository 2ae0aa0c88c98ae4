"""The carrier for a Ray cluster: workers in plain actors, values and weights in its object store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock
from typing import Any

import torch

from labkit.sharding.actor_remote import ActorRemote
from labkit.sharding.cluster import Cluster, join, leave
from labkit.sharding.host import Host
from labkit.sharding.job import Job, LayerRef
from labkit.sharding.objects import Objects
from labkit.sharding.pieces import Piece, cut
from labkit.sharding.places import Places
from labkit.sharding.segment import Segment
from labkit.sharding.state import Stateful
from labkit.sharding.weights import Weights
from labkit.sharding.wiring import Wiring

__all__ = ["Actors"]

_END_S = 10.0
_ANY_NUMBER = 1000


class Actors:
    """See `Carrier`. `workers` is how many there will be at first, spares included.

    Raises `Unavailable` if there is no Ray, no cluster, or no room in it.
    """

    weights = -1

    def __init__(
        self, layers: Sequence[Any], dtypes: Sequence[torch.dtype | None], cluster: Cluster, workers: int
    ) -> None:
        self._cluster, self._layers = cluster, len(layers)
        # A stage with state is given its past inputs again after a loss; the controller keeps them.
        self._keeps_all = any(isinstance(layer, Stateful) for layer in layers)
        self._lock = Lock()
        self._numbers = count()
        self._remotes: list[ActorRemote] = []
        self._wiring = Wiring()
        self._ray = join(cluster, workers)
        try:
            self._places = Places(self._ray, cluster, workers)
            self.store = Objects(self._ray)
            self._load(layers, dtypes)
        except BaseException:
            self._give_back()
            raise

    def _load(self, layers: Sequence[Any], dtypes: Sequence[torch.dtype | None]) -> None:
        """Put the weights into the object store, from where each host takes what its workers need."""
        packed = Weights(layers, dtypes, lambda size_bytes: Segment.create(0, size_bytes))
        try:
            self.refs: tuple[LayerRef, ...] = packed.refs
            self._size_bytes = packed.segment.size_bytes
            self._pieces: list[tuple[Piece, tuple[Any, ...]]] = [
                (piece, (self._ray.put(piece.lifted(packed.segment.memory)),)) for piece in cut(packed)
            ]
        finally:
            packed.segment.close()

    def on_drop(self, tell: Callable[[int], None]) -> None:
        """See `Carrier`."""
        self.store.on_drop = tell

    def start(self, name: str) -> ActorRemote:
        """Ask Ray for an actor. It is told things from now on, and hears them once it has been placed and started."""
        with self._lock:
            alive = self._alive()
            options = self._places.options(len(alive))
            kind = self._ray.remote(Host).options(max_concurrency=_ANY_NUMBER, max_restarts=0, **options)
            threads = max(1, int(self._cluster.cpus))
            listens = self._cluster.edges != "never"
            actor = kind.remote(self._size_bytes, self._pieces, threads=threads, listens=listens)
            remote = ActorRemote(
                next(self._numbers),
                actor,
                self._ray,
                self.store,
                self._wiring,
                self._cluster,
                settles=self._settles,
                check=lambda: self._places.check(len(self._alive())),
                on_end=self._ended,
            )
            self._remotes = [*alive, remote]
            return remote

    def _alive(self) -> list[ActorRemote]:
        return [one for one in self._remotes if not one.over.is_set()]

    def _settles(self, job: Job) -> bool:
        return self._keeps_all or job.last == self._layers

    def _ended(self, gone: ActorRemote) -> None:
        """Let the others close their wires to a worker that is gone."""
        remotes = {one.number: one for one in self._alive()}
        for number, wire in self._wiring.forget(gone.number):
            if number in remotes:
                remotes[number].call("cut", wire.name)

    def close(self) -> None:
        """See `Carrier`."""
        for remote in self._remotes:
            remote.kill()
        end_s = time.perf_counter() + _END_S
        for remote in self._remotes:
            remote.join(max(0.0, end_s - time.perf_counter()))
        self.store.close()
        self._pieces = []
        self._give_back()

    def _give_back(self) -> None:
        places = getattr(self, "_places", None)
        if places is not None:
            places.close()
        leave(self._ray)
