"""What a stage's error looks like to the one who sent the request."""

from __future__ import annotations

import pickle

from labkit.errors import EngineError, ModelFailed, OutOfMemory
from labkit.sharding.job import Failed

__all__ = ["stage_failed"]


def stage_failed(message: Failed, where: str) -> EngineError:
    """Build the error for a failed job; its cause is what the stage raised, with the worker's traceback as a note."""
    error: EngineError
    if message.kind == "out_of_memory":
        error = OutOfMemory(f"{where} ran out of memory: {message.text}", "Send fewer rows, or set microbatch_rows.")
    else:
        error = ModelFailed(f"{where} raised {message.text}", "Its traceback is a note of this error's cause.")
    error.__cause__ = _cause(message.cause)
    return error


def _cause(pickled: bytes) -> BaseException | None:
    if not pickled:
        return None
    try:
        cause = pickle.loads(pickled)
    except Exception:
        # An exception class that only the worker knows; its text is in the message.
        return None
    return cause if isinstance(cause, BaseException) else None
