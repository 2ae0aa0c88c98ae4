"""Tensors from one worker to another without a detour: a process group of exactly two ranks for each direction.

    worker 3, rank 0  ──── "3>7/0" over NCCL or gloo ────▶  worker 7, rank 1
       └─ its TCPStore, where the two find each other under the group's name; it listens on the host's Ray address only

A group that has failed cannot be used again, and a reader that gave up is out of step with its writer. So a wire is cut
at its first fault, for good, and the next value between the two takes a new one: the epoch in its name is higher.
Neither the controller nor any third worker is a rank of it, so nobody else notices.

What is not a tensor (structure, arrays, plain values) travels with the message that announces the value.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pickle
import socket
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

import torch

from labkit.sharding.values import dense_stride, is_plain

__all__ = ["Announced", "Group", "Wire", "announce", "assemble_value", "listen"]

# Its types are incomplete, and some builds lack parts of it.
_dist: Any = importlib.import_module("torch.distributed")

# A writer is told of a value when its reader is given the job, and may wait for it to end the job before.
_RENDEZVOUS_S = (300.0, 10.0)
_POLL_S = 0.0002


class Wire(NamedTuple):
    """From one worker to another: `name` is "sender>receiver/epoch", `host` and `port` those of the sender's store."""

    name: str
    backend: str
    host: str
    port: int


class Announced(NamedTuple):
    """A value without its tensors, and what those will look like."""

    body: bytes
    tensors: tuple[tuple[torch.dtype, tuple[int, ...], tuple[int, ...]], ...]


def announce(value: Any) -> tuple[Announced, list[torch.Tensor]]:
    """Take a value apart; raises what pickle raises for something that cannot be pickled.

    >>> announced, tensors = announce({"rows": torch.ones(2, 3).T, "mask": None})
    >>> assemble_value(announced, tensors)["rows"].shape
    torch.Size([3, 2])
    """
    stream = io.BytesIO()
    lifter = _Lifter(stream)
    lifter.dump(value)
    looks = tuple((one.dtype, tuple(one.shape), dense_stride(one)) for one in lifter.tensors)
    return Announced(stream.getvalue(), looks), lifter.tensors


def assemble_value(announced: Announced, tensors: list[torch.Tensor]) -> Any:
    """Put a value together again."""
    return _Placer(io.BytesIO(announced.body), tensors).load()


def listen(host: str) -> Any:
    """Start a store for rendezvous that is reached under `host` alone."""
    listener = socket.create_server((host, 0))
    port = listener.getsockname()[1]
    descriptor = listener.detach()
    return _dist.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor)


class Group:
    """One end of a wire. The two ends wait for each other when they are made; `own_host` is this end's address."""

    def __init__(self, wire: Wire, rank: int, own_host: str) -> None:
        # A connection of its own, also where the store is: whoever waits on one keeps all others from using it.
        wait = timedelta(seconds=_RENDEZVOUS_S[rank])
        named = _dist.PrefixStore(wire.name, _dist.TCPStore(wire.host, wire.port, is_master=False, timeout=wait))
        make = _nccl if wire.backend == "nccl" else _gloo
        self._group: Any = make(named, rank, own_host)
        self._peer = 1 - rank
        self._closed = False

    def send(self, tensors: Iterable[torch.Tensor]) -> None:
        """Send them one by one; returns when they have gone, however long the reader takes."""
        for tensor in tensors:
            if tensor.numel():
                _wait(self._group.send([_flat(tensor)], self._peer, 0), self, limit_s=None, device=tensor.device)

    def receive(self, announced: Announced, device: torch.device, limit_s: float) -> list[torch.Tensor]:
        """Receive what was announced; raises `TimeoutError` or what the group raises."""
        end_s = time.perf_counter() + limit_s
        tensors = []
        for dtype, shape, stride in announced.tensors:
            tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            tensors.append(tensor)
            if tensor.numel():
                left_s = max(0.001, end_s - time.perf_counter())
                _wait(self._group.recv([_flat(tensor)], self._peer, 0), self, limit_s=left_s, device=device)
        return tensors

    def close(self) -> None:
        """Cut the wire; who waits at it, at either end, is woken."""
        self._closed = True
        with contextlib.suppress(Exception):
            self._group.abort()

    @property
    def closed(self) -> bool:
        """Whether it was cut at this end."""
        return self._closed


def _gloo(store: Any, rank: int, own_host: str) -> Any:
    options = _dist.ProcessGroupGloo._Options()
    options._devices = [_dist.ProcessGroupGloo.create_device(hostname=own_host)]
    options._timeout = timedelta(seconds=_RENDEZVOUS_S[rank])
    options._threads = 1
    return _dist.ProcessGroupGloo(store, rank, 2, options)


def _nccl(store: Any, rank: int, own_host: str) -> Any:
    kind = _dist.ProcessGroupNCCL
    return kind(store, rank, 2, kind.Options())


def _wait(work: Any, group: Group, *, limit_s: float | None, device: torch.device) -> None:
    """Wait until a transfer is over. NCCL's own waiting only queues up on the stream, so the host asks again and again.

    gloo takes a time limit, but uses its default where none is given; a writer may have to wait longer for its reader.
    """
    if device.type == "cpu":
        work.wait(timedelta(seconds=limit_s) if limit_s else timedelta(days=1))
        return
    end_s = time.perf_counter() + limit_s if limit_s else float("inf")
    while not work.is_completed():
        if time.perf_counter() > end_s or group.closed:
            raise TimeoutError(f"a transfer was not over after {limit_s} s")
        # There is no event to wait for: NCCL's Work, given a time limit, polls as well, and less often.
        time.sleep(_POLL_S)
    work.wait()


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All its bytes in the order of memory: a view of a dense tensor, a copy of another."""
    stride = dense_stride(tensor)
    if stride != tuple(tensor.stride()) or tensor.is_conj() or tensor.is_neg():
        dense = torch.empty_strided(tuple(tensor.shape), stride, dtype=tensor.dtype, device=tensor.device)
        tensor = dense.copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


class _Lifter(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)
        self.tensors: list[torch.Tensor] = []
        self._seen: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        """Number the tensors; one that occurs twice is carried once."""
        if not is_plain(value):
            return None
        if id(value) not in self._seen:
            self._seen[id(value)] = len(self.tensors)
            self.tensors.append(value.detach())
        return self._seen[id(value)]


class _Placer(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(stream)
        self._tensors = tensors

    def persistent_load(self, number: int) -> torch.Tensor:
        return self._tensors[number]
