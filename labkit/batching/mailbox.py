"""Answers for an event loop, which is woken once for all that come at a time and not once for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.batching.request import Request

__all__ = ["LoopAnswer", "Mailbox"]


class Mailbox:
    """Where the workers of one batcher leave answers for one event loop; `on_cancel` hears of withdrawn requests."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_cancel: Callable[[Request], None]) -> None:
        self.loop = loop
        self.on_cancel = on_cancel
        self._answers: deque[LoopAnswer] = deque()
        self._called = False

    def put(self, answer: LoopAnswer) -> bool:
        """Leave an answer; any thread. Whether the loop is sure to come for it; if not, it must be called."""
        # First the answer, then the flag: whoever lowers the flag looks for answers after that.
        self._answers.append(answer)
        return self._called and not self.loop.is_closed()

    def call(self) -> None:
        """Have the loop come, if it does not already; any thread."""
        if self.loop.is_closed():
            self._answers.clear()
        elif not self._called:
            self._called = True
            try:
                self.loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                # The loop was closed just now, and with it all who waited in it.
                self._answers.clear()

    def _empty(self) -> None:
        self._called, answers = False, self._answers
        while answers:
            answer = answers.popleft()
            try:
                if answer.error is None:
                    answer.set_result(answer.output)
                else:
                    answer.fail(answer.error)
            except asyncio.InvalidStateError:
                # The one who waited has gone.
                continue


class LoopAnswer(asyncio.Future[Any]):
    """What `await batcher(payload)` waits for. Cancelling it, or its task, withdraws the request.

    Made with its loop, and given `request` and `mailbox` by the former: an `__init__` would cost as much as all else.
    `cancel` belongs to the loop's thread, as all of an asyncio future does; the others to the worker's.
    """

    __slots__ = ("error", "mailbox", "output", "request")

    output: Any
    error: Exception | None
    request: Request | None
    mailbox: Mailbox

    def begins_unwatched(self) -> bool:
        """Whether the work may begin; asked by the worker's thread."""
        return not self.cancelled()

    def ends_unwatched(self, result: Any) -> bool:
        """Send the answer to the loop; whether that is all. If not, the loop must be woken, by `deliver`."""
        self.request = self.error = None
        self.output = result
        return self.mailbox.put(self)

    def set_running_or_notify_cancel(self) -> bool:
        """Whether the work may begin; asked by the worker's thread."""
        return not self.cancelled()

    def deliver(self, output: Any, error: Exception | None) -> None:
        """Send the answer to the loop, unless it is there, and wake it; called by the worker's thread."""
        if self.request is not None:
            self.request = None
            self.output, self.error = output, error
            self.mailbox.put(self)
        self.mailbox.call()

    def fail(self, error: Exception) -> None:
        """Become done with `error`; for a coroutine cannot raise StopIteration, that one is wrapped."""
        self.set_exception(RuntimeError(f"the answer was {error!r}") if isinstance(error, StopIteration) else error)

    def cancel(self, msg: Any = None) -> bool:
        """Withdraw the request; its answer, should it run already, is dropped."""
        request, self.request = self.request, None
        cancelled = super().cancel(msg)
        if cancelled and request is not None:
            self.mailbox.on_cancel(request)
        return cancelled
