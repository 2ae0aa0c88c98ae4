"""`@batched`: a function over a batch that is called with single items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cached_property, update_wrapper
from threading import Lock
from typing import Any, Generic, TypeVar

from labkit.batching.batcher import Batcher

__all__ = ["BatchedFunction", "batched"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class BatchedFunction(Generic[Item, Answer]):
    """Calls from many threads meet in one batcher, which starts with the first call.

    `f(item)` blocks for the answer, `f.submit(item)` returns its future, `await f.batcher(item)` is for event loops.
    """

    def __init__(self, function: Callable[[Sequence[Item]], Sequence[Answer]], options: dict[str, Any]) -> None:
        self._function = function
        self._options = options
        self._starting = Lock()
        update_wrapper(self, function)

    @cached_property
    def _started(self) -> Batcher:
        return Batcher(self._function, name=getattr(self._function, "__name__", "batched"), **self._options)

    @property
    def batcher(self) -> Batcher:
        """The batcher behind the function."""
        with self._starting:
            return self._started

    def __call__(self, item: Item) -> Answer:
        """The answer for one item; raises what the batcher answers it with."""
        return self.submit(item).result()

    def submit(self, item: Item) -> Future[Answer]:
        """The future of one item's answer."""
        return self.batcher.submit(item)


def batched(
    **options: Any,
) -> Callable[[Callable[[Sequence[Item]], Sequence[Answer]]], BatchedFunction[Item, Answer]]:
    """Make a function over a batch callable with single items; `options` are those of `Batcher`.

    >>> @batched(max_rows=8)
    ... def double(numbers):
    ...     return [2 * number for number in numbers]
    >>> double(21)
    42
    >>> double.batcher.close()
    """

    def decorate(function: Callable[[Sequence[Item]], Sequence[Answer]]) -> BatchedFunction[Item, Answer]:
        return BatchedFunction(function, options)

    return decorate
