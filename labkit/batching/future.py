"""A future that may be cancelled by its holder at any time before its work begins."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

__all__ = ["Cancellable"]

Result = TypeVar("Result")


class Cancellable(Future[Result]):
    """A future whose cancellation is made known at once.

    `concurrent.futures.wait` and `as_completed` hear of a cancelled future only when its executor comes across it. Here
    nobody comes across withdrawn work any more, so the future itself tells them.
    """

    def cancel(self) -> bool:
        """Withdraw the work unless it has begun; cancelled work is never executed."""
        try:
            return super().cancel()
        finally:
            # Also when one of the holder's callbacks raises SystemExit: the work must not stay behind.
            if self.cancelled():
                self._withdraw()
                self.set_running_or_notify_cancel()

    def _withdraw(self) -> None:
        """Called after every cancellation; does nothing the second time."""

    def set_running_or_notify_cancel(self) -> bool:
        """As `Future` does it, but a cancelled one may be found by several parties."""
        with self._condition:
            return self._state != "CANCELLED_AND_NOTIFIED" and super().set_running_or_notify_cancel()
