"""What controller and workers say to each other: small messages, never the values themselves.

A unit of work is one microbatch of one request at one stage. `Key.epoch` grows with every loss that the pipeline
suffers, so that whatever a lost worker may still say about a unit is told from what its successor says.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

import torch

__all__ = [
    "Attach",
    "Done",
    "Failed",
    "FailureKind",
    "Forget",
    "Grow",
    "Job",
    "Key",
    "LayerRef",
    "Load",
    "Loaded",
    "Misbehave",
    "Ping",
    "Pong",
    "Replay",
    "Room",
    "Tune",
    "Unloadable",
    "decode",
    "encode",
    "receiver",
    "sender",
]

Replay = Literal["", "last", "all"]
FailureKind = Literal["raised", "out_of_memory", "behind", "lost"]


class Key(NamedTuple):
    """Names a unit of work."""

    request: int
    microbatch: int
    stage: int
    epoch: int


class LayerRef(NamedTuple):
    """Where in the segment of weights a layer lies."""

    layer: int
    offset: int
    size_bytes: int
    weights_bytes: int
    dtype: torch.dtype | None


class Attach(NamedTuple):
    """To a worker: here is a segment (its handle follows unless it has a name)."""

    segment: int
    size_bytes: int
    name: str
    private: bool


class Load(NamedTuple):
    """To a worker: have exactly these layers, on this device, from that segment."""

    layers: tuple[LayerRef, ...]
    device: str
    weights: int


class Tune(NamedTuple):
    """To a worker: use so many threads, and do everything `slowdown` times over."""

    threads: int
    slowdown: float


class Job(NamedTuple):
    """To a worker: run layers `first` to `last - 1` on what lies in `source`, and write the outcome into `target`.

    A stateful job belongs to a `sequence` (-1: none), at `position`. With `replay` the source is a list of all inputs
    from position 0 on, and the state is built anew: "last" answers with the last output, "all" with every one.
    """

    key: Key
    first: int
    last: int
    source: int
    target: int
    sequence: int = -1
    position: int = 0
    replay: Replay = ""
    dropped: tuple[int, ...] = ()


class Room(NamedTuple):
    """To a worker: here is a larger slot for the outcome that you are holding."""

    key: Key
    target: int


class Forget(NamedTuple):
    """To a worker: this sequence has ended."""

    sequence: int


class Misbehave(NamedTuple):
    """To a worker in a thread, for tests and labs: die or hang (a process is sent a signal instead)."""

    how: Literal["kill", "hang"]


class Ping(NamedTuple):
    """Asks an idle worker for a sign of life."""


class Pong(NamedTuple):
    """From a worker: I am. A process says so unasked while it works."""


class Loaded(NamedTuple):
    """From a worker: the layers are here."""

    layers: tuple[int, ...]
    seconds: float


class Unloadable(NamedTuple):
    """From a worker: the layers cannot be loaded."""

    text: str


class Done(NamedTuple):
    """From a worker: the outcome lies in the target slot; `moved_s` went into reading and writing values."""

    key: Key
    written_bytes: int
    started_s: float
    finished_s: float
    layer_s: tuple[float, ...]
    moved_s: float


class Grow(NamedTuple):
    """From a worker: the target is too small, the outcome takes so many bytes."""

    key: Key
    size_bytes: int


class Failed(NamedTuple):
    """From a worker: the stage raised, memory ran out, its state is not at the job's position, or its value is lost."""

    key: Key
    kind: FailureKind
    text: str
    cause: bytes
    started_s: float
    finished_s: float


_KINDS = (Attach, Load, Tune, Job, Room, Forget, Misbehave, Ping, Pong, Loaded, Unloadable, Done, Grow, Failed)
# Those that begin with a key.
_KEYED = (Job, Room, Done, Grow, Failed)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
_Message = tuple[Any, ...]


def encode(message: _Message) -> bytes:
    """The bytes of a message, as plain tuples: pickle writes a class by its name, for five times the price.

    >>> decode(encode(Grow(Key(request=7, microbatch=0, stage=1, epoch=0), size_bytes=64))).key.request
    7
    """
    fields = (tuple(message[0]), *message[1:]) if isinstance(message, _KEYED) else tuple(message)
    return pickle.dumps((_NUMBERS[type(message)], fields), protocol=5)


def decode(data: bytes) -> Any:
    """The message again."""
    number, fields = pickle.loads(data)
    kind = _KINDS[number]
    return kind(Key(*fields[0]), *fields[1:]) if kind in _KEYED else kind(*fields)


def sender(connection: Connection[Any, Any]) -> Callable[[_Message], None]:
    """Return the function that sends messages through `connection`."""
    return lambda message: connection.send_bytes(encode(message))


def receiver(connection: Connection[Any, Any]) -> Callable[[], Any]:
    """Return the function that waits for the next message; raises `EOFError` or `OSError` at the pipe's end."""
    return lambda: decode(connection.recv_bytes())
