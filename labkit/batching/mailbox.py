"""Answers for an event loop, which is woken once for all that come at a time and not once for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.batching.request import Request

__all__ = ["LoopAnswer", "Mailbox"]

_Letter = tuple["LoopAnswer", Any, "Exception | None"]


class Mailbox:
    """Where workers leave answers for one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._letters: deque[_Letter] = deque()
        self._called = False

    def put(self, answer: LoopAnswer, output: Any, error: Exception | None) -> None:
        """Leave an answer; any thread."""
        if self.loop.is_closed():
            self._letters.clear()
            return
        self._letters.append((answer, output, error))
        if not self._called:
            self._call()

    def _call(self) -> None:
        self._called = True
        try:
            self.loop.call_soon_threadsafe(self._empty)
        except RuntimeError:
            # The loop was closed just now, and with it all who waited in it.
            self._letters.clear()

    def _empty(self) -> None:
        # First the flag, then the letters: one that is left behind by this turn calls for the next.
        self._called, letters = False, self._letters
        while letters:
            answer, output, error = letters.popleft()
            if answer.done():
                # The one who waited has gone.
                continue
            if error is None:
                answer.set_result(output)
            else:
                answer.fail(error)


class LoopAnswer(asyncio.Future[Any]):
    """What `await batcher(payload)` waits for. Cancelling it, or its task, withdraws the request.

    `fail` and `cancel` belong to the loop's thread, as all of an asyncio future does; the others to the worker's.
    """

    __slots__ = ("_mailbox", "_on_cancel", "_request")

    def __init__(self, request: Request, on_cancel: Callable[[Request], None], mailbox: Mailbox) -> None:
        asyncio.Future.__init__(self, loop=mailbox.loop)
        self._request: Request | None = request
        self._on_cancel = on_cancel
        self._mailbox = mailbox

    def begins_unwatched(self) -> bool:
        """Whether the work may begin; asked by the worker's thread."""
        return not self.cancelled()

    def ends_unwatched(self, result: Any) -> bool:
        """Never: an event loop must be woken, for which others must not be kept waiting."""
        return False

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the work may begin; asked by the worker's thread."""
        return not self.cancelled()

    def deliver(self, output: Any, error: Exception | None) -> None:
        """Send the answer to the loop; called by the worker's thread."""
        self._request = None
        self._mailbox.put(self, output, error)

    def fail(self, error: Exception) -> None:
        """Become done with `error`; for a coroutine cannot raise StopIteration, that one is wrapped."""
        self.set_exception(RuntimeError(f"the answer was {error!r}") if isinstance(error, StopIteration) else error)

    def cancel(self, msg: Any = None) -> bool:
        """Withdraw the request; its answer, should it run already, is dropped."""
        request, self._request = self._request, None
        cancelled = super().cancel(msg)
        if cancelled and request is not None:
            self._on_cancel(request)
        return cancelled
