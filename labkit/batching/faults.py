"""How a batch that fails is taken apart until only the guilty rows fail.

    batch of 8, row 5 is bad:   [0..7] fails -> [0..3] ok, [4..7] fails -> [4 5] fails -> [4] ok, [5] fails; [6 7] ok

With k guilty rows of n this takes about 2 k log2(n/k) extra runs, and 2 n - 1 runs if all are guilty. Out of memory is
not the rows' fault: the batch is halved and run again, and a cap is learned that recovers slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb, format_list
from typing import Any, TypeVar

import torch

from labkit.errors import ModelFailed, OutOfMemory

__all__ = ["Failure", "MemoryCap", "detached", "is_out_of_memory", "run_apart"]

Item = TypeVar("Item")
Fault = TypeVar("Fault", bound=BaseException)

_WHERE = "Raised at:\n"
_OWN_FILES = str(Path(__file__).parent)
_CPU_MARKS = ("not enough memory", "can't allocate memory", "cannot allocate memory", "out of memory")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a row is answered with instead of an output."""

    error: Exception


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out, on any device.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("bad"))
    (True, False)
    """
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error).lower() for mark in _CPU_MARKS)


def run_apart(
    items: Sequence[Item],
    run: Callable[[Sequence[Item]], Sequence[Any]],
    *,
    isolate: bool = True,
    on_out_of_memory: Callable[[int], None] = lambda rows: None,
) -> Iterator[tuple[Sequence[Item], list[Any]]]:
    """Run all items, in parts where need be; yield each part with its outputs, or `Failure`s, as soon as it is known.

    `run` computes outputs in order, or raises. Without `isolate` a failing batch fails as a whole (for models whose
    runs must not be repeated). `on_out_of_memory` is told how many rows did not fit.

    >>> def run(rows): return [1 / row for row in rows]
    >>> [(part, outputs if part != [0] else "failed") for part, outputs in run_apart([1, 2, 0, 4], run)]
    [([1, 2], [1.0, 0.5]), ([0], 'failed'), ([4], [0.25])]
    """
    outputs = _attempt(items, run, isolate, on_out_of_memory)
    if outputs is not None:
        yield items, outputs
        return
    half = len(items) // 2
    for part in (items[:half], items[half:]):
        yield from run_apart(part, run, isolate=isolate, on_out_of_memory=on_out_of_memory)


def _attempt(
    items: Sequence[Item],
    run: Callable[[Sequence[Item]], Sequence[Any]],
    isolate: bool,
    on_out_of_memory: Callable[[int], None],
) -> list[Any] | None:
    """One run: outputs or final failures, or None if the parts must be tried. The failed run's tensors end with it."""
    try:
        return list(run(items))
    except Exception as error:
        short = is_out_of_memory(error)
        if short:
            on_out_of_memory(len(items))
        if len(items) > 1 and (short or isolate):
            return None
        detached(error)
        return [Failure(_explained(error, len(items))) for _ in items]


def _explained(error: Exception, rows: int) -> Exception:
    if is_out_of_memory(error):
        told: Exception = OutOfMemory(
            f"a batch of {rows} did not fit into memory ({_line(error)})",
            "Use a smaller input, a lower precision or a device with more memory.",
        )
    else:
        told = ModelFailed(
            f"the model raised {type(error).__name__} for a batch of {rows}: {_line(error)}",
            "The cause is attached; other requests are not affected.",
        )
    told.__cause__ = error
    return told


def detached(error: Fault) -> Fault:
    """Let an exception that was caught keep nothing alive: where it was raised becomes a note of text.

    A traceback holds frames, those hold their callers' frames, and all of them hold tensors, payloads and requests.
    """
    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            _note_where(link)
            link.__traceback__ = None
            chain += [link.__cause__, link.__context__]
    return error


def _note_where(error: BaseException) -> None:
    frames = extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_OWN_FILES)] or frames
    # An exception that is made once and raised again and again must not gather notes.
    if theirs and not any(note.startswith(_WHERE) for note in getattr(error, "__notes__", ())):
        error.add_note(_WHERE + "".join(format_list(theirs)).rstrip())


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]


class MemoryCap:
    """The largest batch believed to fit: halved when memory runs out, one row more after `patience` good full batches.

    >>> cap = MemoryCap(patience=2)
    >>> cap.exceeded(32); cap.within(32)
    16
    >>> cap.succeeded(16); cap.succeeded(16); cap.within(32)
    17
    """

    def __init__(self, patience: int = 50) -> None:
        self._limit: int | None = None
        self._patience = patience
        self._good = 0

    def within(self, rows: int) -> int:
        """The cap, where `rows` is what the settings allow."""
        limit = self._limit
        return rows if limit is None else min(limit, rows)

    def exceeded(self, rows: int) -> None:
        """Learn that `rows` did not fit. One row that does not fit alone says nothing about batches of others."""
        if rows == 1:
            return
        fits = rows // 2
        self._limit = fits if self._limit is None else min(self._limit, fits)
        self._good = 0

    def succeeded(self, rows: int) -> None:
        """Learn that `rows` did fit; only batches at the cap say anything about a larger one."""
        if self._limit is None or rows < self._limit:
            return
        self._good += 1
        if self._good >= self._patience:
            self._limit += 1
            self._good = 0
