"""One exception tree for the whole project.

    LabkitError
    ├── SettingError          a setting or argument outside its limits (also a ValueError)
    │   └── UnknownName       a name that does not exist, with the nearest ones that do
    ├── Unavailable           something that this machine or installation lacks
    ├── FetchError            a file that could not be had from any of its sources
    │   └── ChecksumMismatch  a file that arrived, but is not the file that was asked for
    ├── EngineError           what an engine answers through a request's future
    │   ├── EngineClosed      the engine was closed before or while the request waited
    │   ├── QueueFull         refused at once; carries `retry_after_s`
    │   ├── DeadlineExceeded  the request's own time limit has passed, or cannot be met any more
    │   ├── PrepareFailed     preprocessing raised for this item; the cause is attached
    │   ├── ModelFailed       the model raised for this item; the cause is attached
    │   ├── OutOfMemory       this item alone does not fit into the device's memory
    │   └── WorkerDied        the worker that ran this item was lost
    ├── MeasureError
    │   ├── RunVoid           the load generator could not keep its own schedule
    │   └── TraceError        a trace file that cannot be read as what it claims to be
    └── ReportError
        ├── CellFailed        a notebook cell raised
        ├── CellTimeout       a notebook cell ran past its time limit
        ├── KernelDied        the kernel was lost while a notebook ran
        └── ReportIncomplete  the notebook ended without recording its result

Each message names the value, the limit that it broke and what to do about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

__all__ = [
    "CellFailed",
    "CellTimeout",
    "ChecksumMismatch",
    "DeadlineExceeded",
    "EngineClosed",
    "EngineError",
    "FetchError",
    "KernelDied",
    "LabkitError",
    "MeasureError",
    "ModelFailed",
    "OutOfMemory",
    "PrepareFailed",
    "QueueFull",
    "ReportError",
    "ReportIncomplete",
    "RunVoid",
    "SettingError",
    "TraceError",
    "Unavailable",
    "UnknownName",
    "WorkerDied",
    "require",
    "require_known",
]


class LabkitError(Exception):
    """What went wrong (`problem`, with value and limit) and what to do about it (`remedy`).

    >>> str(LabkitError("max_rows is 0; it must be at least 1", "Give a positive cap."))
    'max_rows is 0; it must be at least 1. Give a positive cap.'
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        # Both parts are the exception's args, so that it survives pickling between processes.
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem.rstrip('.')}. {self.remedy}".strip() if self.remedy else self.problem


class SettingError(LabkitError, ValueError):
    """A setting or argument outside its limits."""


class UnknownName(SettingError):
    """A name that does not exist, with the nearest ones that do."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """Build the error for `name`, which is none of `known`.

        >>> str(UnknownName.among("model", "minlm", ["minilm", "efficientnet-lite0"]))
        "There is no model 'minlm'. Did you mean 'minilm'? Known: efficientnet-lite0, minilm."
        """
        names = sorted(known)
        near = get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        return cls(f"There is no {kind} {name!r}", f"{hint}Known: {', '.join(names) or 'none'}.")


class Unavailable(LabkitError):
    """Something that this machine or installation lacks."""


class FetchError(LabkitError):
    """A file that could not be had from any of its sources."""


class ChecksumMismatch(FetchError):
    """A file that arrived, but is not the file that was asked for."""


class EngineError(LabkitError):
    """What an engine answers through a request's future."""


class EngineClosed(EngineError):
    """The engine was closed before or while the request waited."""


class QueueFull(EngineError):
    """Refused at once; `retry_after_s` says when a new try has a chance."""

    def __init__(self, problem: str, remedy: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(problem, remedy)
        self.args = (problem, remedy, retry_after_s)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(EngineError, TimeoutError):
    """The request's own time limit has passed, or cannot be met any more."""


class PrepareFailed(EngineError):
    """Preprocessing raised for this item; `__cause__` is what it raised."""


class ModelFailed(EngineError):
    """The model raised for this item; `__cause__` is what it raised."""


class OutOfMemory(EngineError):
    """This item alone does not fit into the device's memory."""


class WorkerDied(EngineError):
    """The worker that ran this item was lost."""


class MeasureError(LabkitError):
    """A measurement that cannot be trusted or cannot be made."""


class RunVoid(MeasureError):
    """The load generator could not keep its own schedule."""


class TraceError(MeasureError):
    """A trace file that cannot be read as what it claims to be."""


class ReportError(LabkitError):
    """A notebook run that did not end as a report."""


class CellFailed(ReportError):
    """A notebook cell raised."""


class CellTimeout(ReportError):
    """A notebook cell ran past its time limit."""


class KernelDied(ReportError):
    """The kernel was lost while a notebook ran."""


class ReportIncomplete(ReportError):
    """The notebook ended without recording its result."""


def require(holds: bool, problem: str, remedy: str) -> None:
    """Raise `SettingError` unless `holds`; the border check of every settings class.

    >>> require(0 < 5, "rate_per_s is 0; it must be positive", "Give a rate above 0.")
    """
    if not holds:
        raise SettingError(problem, remedy)


def require_known(kind: str, name: str, known: Collection[str]) -> None:
    """Raise `UnknownName`, with the nearest name, unless `name` is one of `known`.

    >>> require_known("order", "given", ("any", "given"))
    """
    if name not in known:
        raise UnknownName.among(kind, name, known)
