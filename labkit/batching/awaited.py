"""A request that came by `await batcher(payload)`, as the future that its event loop holds."""

from __future__ import annotations

import asyncio
from typing import Any

from labkit.batching.faults import Failure
from labkit.batching.mailbox import Mailbox
from labkit.batching.request import FIELDS, Request

__all__ = ["Awaited"]


class Awaited(asyncio.Future[Any], Request):
    """A request whose answer goes through a mailbox to its loop. Cancelling it, or its task, withdraws it.

    Made with its loop, and given `mailbox` by the former: an `__init__` would cost as much as all else. `cancel`
    belongs to the loop's thread, as all of an asyncio future does; the others to the worker's.
    """

    __slots__ = (*FIELDS, "mailbox", "output")

    mailbox: Mailbox
    output: Any

    def begins_unwatched(self) -> bool:
        """See `Request.begins_unwatched`."""
        return not self.cancelled()

    # A loop's future is never watched, so both are the same question.
    set_running_or_notify_cancel = begins_unwatched

    def ends_unwatched(self, result: Any) -> bool:
        """Leave the answer for the loop; whether the loop is sure to come for it."""
        self.output = result
        mailbox = self.mailbox
        # First the answer, then the flag: whoever lowers the flag looks for answers after that.
        mailbox.answers.append(self)
        return mailbox.called and not mailbox.loop.is_closed()

    def end(self, result: Any) -> None:
        """Have the loop come: the answer is there already."""
        self.mailbox.call()

    def fail(self, error: Exception) -> None:
        """See `Request.fail`."""
        self.output = Failure(error)
        self.mailbox.answers.append(self)
        self.mailbox.call()

    def cancel(self, msg: Any = None) -> bool:
        """Withdraw the request; its answer, should it run already, is dropped."""
        cancelled = super().cancel(msg)
        if cancelled:
            self.mailbox.on_cancel(self)
        return cancelled
