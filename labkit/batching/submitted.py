"""A request that came by `submit`, as the future that any thread may hold."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from concurrent.futures._base import PENDING
from typing import Any

from labkit.batching.future import Cancellable
from labkit.batching.request import FIELDS, Request

__all__ = ["Submitted"]

_log = logging.getLogger(__name__)


class Submitted(Cancellable[Any], Request):
    """A request that tells the batcher at once, by `on_cancel`, when its sender cancels it."""

    __slots__ = (*FIELDS, "_on_cancel")

    def __init__(self, on_cancel: Callable[[Request], None]) -> None:
        # As the base does it: to call it would cost as much again.
        self._watched = False
        self._state = PENDING
        self._result = self._exception = None
        self._on_cancel = on_cancel

    def _withdraw(self) -> None:
        self._on_cancel(self)

    def end(self, result: Any) -> None:
        """See `Request.end`; whatever a callback raises is logged."""
        self._become(self.set_result, result)

    def fail(self, error: Exception) -> None:
        """See `Request.fail`; whatever a callback raises is logged."""
        self._become(self.set_exception, error)

    def _become(self, become: Callable[[Any], None], what: Any) -> None:
        try:
            become(what)
        except InvalidStateError:
            return
        except BaseException:
            # A callback of this future wants to end the thread. It must not take its neighbours' answers along.
            _log.exception("a callback of a request's future raised")
