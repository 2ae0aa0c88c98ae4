"""A future that costs next to nothing until somebody waits for it, and that its holder may cancel before work begins.

A plain `concurrent.futures.Future` is born with a condition, its lock and two lists, and takes the lock at every step.
Most futures of a batch need none of that: when their holder comes to look, they are done. So here the condition is made
for the first one who waits, listens or cancels. Which of two locks guards a future follows from that:

- *watched*, once it has a condition: the condition's own lock, as in any future;
- *unwatched* until then: `unwatched`, one lock for all such futures, so that a whole batch moves on in one turn. A
  condition is made under the same lock, so nobody can come to wait while a future changes.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING, RUNNING
from threading import Condition, RLock
from typing import Any, TypeVar

__all__ = ["Cancellable", "unwatched"]

Result = TypeVar("Result")

# Never held while another lock is taken. It may be entered twice, by a finalizer that the garbage collector runs.
unwatched = RLock()

if hasattr(os, "register_at_fork"):
    # A child must not be born while a thread that it will not have holds the lock.
    os.register_at_fork(before=unwatched.acquire, after_in_parent=unwatched.release, after_in_child=unwatched.release)


class _WhenWatched:
    """What only a watched future has, and what makes it a watched one when it is first asked for.

    Once it stands among the instance's own attributes, Python finds it there. (With a `__getattr__`, which would do the
    same, Python reads every other attribute by a slower path, too.)
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, future: Any, owner: Any = None) -> Any:
        future.be_watched()
        return future.__dict__[self._name]


class Cancellable(Future[Result]):
    """A future whose cancellation is made known at once.

    `concurrent.futures.wait` and `as_completed` hear of a cancelled future only when its executor comes across it. Here
    nobody comes across withdrawn work any more, so the future itself tells them.
    """

    # All but what only a watched one has; reading a slot is what Python does fastest.
    __slots__ = ("_exception", "_result", "_state", "_watched")

    _condition = _WhenWatched("_condition")
    _waiters = _WhenWatched("_waiters")
    _done_callbacks = _WhenWatched("_done_callbacks")

    def __init__(self) -> None:
        # Not as the base does it, for that makes a condition.
        self._watched = False
        self._state = PENDING
        self._result = None
        self._exception = None

    def be_watched(self) -> None:
        """Have a condition, for the first who waits, listens or cancels."""
        with unwatched:
            if not self._watched:
                self.__dict__.update(_waiters=[], _done_callbacks=[], _condition=Condition())
                self._watched = True

    def begins_unwatched(self) -> bool:
        """Be running, unless it is watched: then `set_running_or_notify_cancel` must do it. Ask under `unwatched`."""
        if self._watched:
            return False
        self._state = RUNNING
        return True

    def ends_unwatched(self, result: Result) -> bool:
        """Be done, unless it is watched: then `set_result` must do it. Ask under `unwatched`."""
        if self._watched:
            return False
        self._result = result
        self._state = FINISHED
        return True

    def done(self) -> bool:
        """Whether it has ended in any way."""
        return self._state not in (PENDING, RUNNING)

    def result(self, timeout: float | None = None) -> Result:
        """See `Future.result`."""
        # What is finished never changes again, so no lock is needed to read it.
        if self._state == FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]
        return super().result(timeout)

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
