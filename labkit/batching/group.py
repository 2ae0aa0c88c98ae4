"""Several rows sent as one request: one future, their answers in order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from threading import Lock
from typing import Any

from labkit.batching.future import Cancellable

__all__ = ["Group"]


class Group(Cancellable[list[Any]]):
    """A future over the futures of its rows: the list of answers, or the first row's error.

    Rows travel on their own, so a request larger than a batch is split wherever batches end and small ones fill up each
    other's batches. When a row fails, or the group is cancelled, the rows that still wait are withdrawn.
    """

    def __init__(self, rows: Sequence[Future[Any]]) -> None:
        super().__init__()
        self._rows = tuple(rows)
        self._missing = len(self._rows)
        self._count = Lock()
        for row in self._rows:
            row.add_done_callback(self._row_done)
        if not self._rows:
            self.set_result([])

    def _withdraw(self) -> None:
        for row in self._rows:
            row.cancel()

    def _row_done(self, row: Future[Any]) -> None:
        with self._count:
            self._missing -= 1
            last = self._missing == 0
        if self.done():
            return
        error = None if row.cancelled() else row.exception()
        try:
            if error is not None:
                self.set_exception(error)
                self._withdraw()
            elif last:
                self.set_result([one.result() for one in self._rows])
        except InvalidStateError:
            # Cancelled, or failed by another row, in the same instant.
            return
