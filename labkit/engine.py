"""The one shape that every engine has, so that load generators, labs and services can drive any of them.

future = engine.submit(payload)      # returns at once; raises QueueFull or EngineClosed
engine.snapshot()                    # what it is doing now
engine.records                       # what it has done
engine.close()                       # no future stays unresolved
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from labkit.records import Recorder

if TYPE_CHECKING:
    import torch

__all__ = ["Engine", "Place", "Prepare", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an engine is doing at this moment, in requests.

    `queued` have been accepted and wait (for preprocessing or for a device), `running` are in a step now; the other
    counts are totals since the start. `notes` are one-line facts worth showing (a learned cap, a replaced worker).
    """

    open: bool
    queued: int
    running: int
    ok: int = 0
    failed: int = 0
    rejected: int = 0
    expired: int = 0
    cancelled: int = 0
    notes: tuple[str, ...] = ()


@runtime_checkable
class Engine(Protocol):
    """Anything that answers requests; see the module's text for its use."""

    @property
    def records(self) -> Recorder:
        """The rows of all ended requests and executed steps."""
        ...

    def submit(
        self, payload: Any, *, intended_s: float | None = None, timeout_s: float | None = None, priority: int = 0
    ) -> Future[Any]:
        """Accept one request and return its future at once.

        `intended_s` is the `time.perf_counter` time at which a load generator meant to send it (latency counts from
        there), `timeout_s` the request's total time limit, `priority` its level (0 first, larger numbers later).

        Raises `QueueFull` (with `retry_after_s`) or `EngineClosed`; everything later comes through the future.
        """
        ...

    def snapshot(self) -> Snapshot:
        """What the engine is doing now; cheap enough to ask five times a second."""
        ...

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> None:
        """Stop. With `drain` finish what was accepted (for at most `timeout_s`), else answer it with `EngineClosed`."""
        ...


class Place(Protocol):
    """Gives a prepared row its place in an engine's staging memory."""

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype, real_units: int | None = None) -> torch.Tensor:
        """Return an uninitialised tensor of `shape` that the row must be written into.

        `real_units` says how many of the row's units (tokens, pixels) are not padding; None: all of them.
        """
        ...


@runtime_checkable
class Prepare(Protocol):
    """Preprocessing that writes its row straight into staging memory, so that collating a batch copies nothing."""

    def __call__(self, payload: Any) -> Any:
        """Return the row as a new tensor (the plain form)."""
        ...

    def into(self, payload: Any, place: Place) -> torch.Tensor:
        """Write the row into the tensor that `place` gives for its shape, and return that tensor."""
        ...
