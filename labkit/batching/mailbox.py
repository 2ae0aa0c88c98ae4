"""Answers for an event loop, which is woken once for all that come at a time and not once for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.batching.faults import Failure

if TYPE_CHECKING:
    from labkit.batching.awaited import Awaited
    from labkit.batching.request import Request

__all__ = ["Mailbox"]


class Mailbox:
    """Where the workers of one batcher leave answers for one event loop; `on_cancel` hears of withdrawn requests.

    While `called` is set, the loop is going to come for all `answers`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_cancel: Callable[[Request], None]) -> None:
        self.loop = loop
        self.on_cancel = on_cancel
        self.answers: deque[Awaited] = deque()
        self.called = False

    def call(self) -> None:
        """Have the loop come, if it does not already; any thread."""
        if self.loop.is_closed():
            self.answers.clear()
        elif not self.called:
            self.called = True
            try:
                self.loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                # The loop was closed just now, and with it all who waited in it.
                self.answers.clear()

    def _empty(self) -> None:
        self.called, answers = False, self.answers
        while answers:
            request = answers.popleft()
            output = request.output
            try:
                if type(output) is Failure:
                    request.set_exception(_raisable(output.error))
                else:
                    request.set_result(output)
            except asyncio.InvalidStateError:
                # The one who waited has gone.
                continue


def _raisable(error: Exception) -> Exception:
    """What a coroutine can raise in place of `error`: StopIteration would only end it."""
    return RuntimeError(f"the answer was {error!r}") if isinstance(error, StopIteration) else error
