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

    def put(self, letter: _Letter) -> bool:
        """Leave an answer; any thread. Whether the loop is sure to come for it; if not, it must be called."""
        # First the letter, then the flag: whoever lowers the flag looks for letters after that.
        self._letters.append(letter)
        return self._called and not self.loop.is_closed()

    def call(self) -> None:
        """Have the loop come, if it does not already; any thread."""
        if self.loop.is_closed():
            self._letters.clear()
        elif not self._called:
            self._called = True
            try:
                self.loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                # The loop was closed just now, and with it all who waited in it.
                self._letters.clear()

    def _empty(self) -> None:
        self._called, letters = False, self._letters
        while letters:
            answer, output, error = letters.popleft()
            try:
                if error is None:
                    answer.set_result(output)
                else:
                    answer.fail(error)
            except asyncio.InvalidStateError:
                # The one who waited has gone.
                continue


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
        """Send the answer to the loop; whether that is all. If not, the loop must be woken, by `deliver`."""
        self._request = None
        return self._mailbox.put((self, result, None))

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the work may begin; asked by the worker's thread."""
        return not self.cancelled()

    def deliver(self, output: Any, error: Exception | None) -> None:
        """Send the answer to the loop, unless it is there, and wake it; called by the worker's thread."""
        if self._request is not None:
            self._request = None
            self._mailbox.put((self, output, error))
        self._mailbox.call()

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
