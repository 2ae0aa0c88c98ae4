"""A sequence: requests that share the state of stateful stages, one after the other (a chat, a decoder's run)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from labkit.sharding.request import Request
from labkit.sharding.state import History

__all__ = ["Sequence", "SequenceState"]


class SequenceState:
    """What the controller knows of a sequence: how far it is, what its stages were given, and where they run."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.position = 0
        self.history = History()
        self.waiting: deque[Request] = deque()
        self.running: Request | None = None
        self.seats: dict[int, int] = {}
        self.closed = False

    def ended(self, request: Request, *, ok: bool) -> Request | None:
        """Note that a step has ended; return the one that may begin now."""
        if self.running is not request:
            if request in self.waiting:
                self.waiting.remove(request)
            return None
        self.running = None
        if ok:
            self.position += 1
        else:
            self.history.cut(self.position)
        return self.start()

    def start(self) -> Request | None:
        """Take the next step, if none is under way."""
        if self.running is None and self.waiting:
            self.running = self.waiting.popleft()
            return self.running
        return None


class Sequence:
    """Steps that build on each other: `with pipeline.sequence() as chat: chat.submit(tokens).result()`.

    A step is one request, not cut into microbatches. Steps of one sequence run one after the other, those of different
    sequences side by side. A step that fails leaves the state as it was before.
    """

    def __init__(
        self, state: SequenceState, submit: Callable[..., Future[Any]], end: Callable[[SequenceState], None]
    ) -> None:
        self._state, self._submit, self._end = state, submit, end

    @property
    def position(self) -> int:
        """Steps that have ended well."""
        return self._state.position

    def submit(
        self, payload: Any, *, intended_s: float | None = None, timeout_s: float | None = None, priority: int = 0
    ) -> Future[Any]:
        """Let the next step begin after those before it; see `Engine.submit`."""
        return self._submit(
            payload, intended_s=intended_s, timeout_s=timeout_s, priority=priority, sequence=self._state
        )

    def close(self) -> None:
        """Let the workers forget its state."""
        self._end(self._state)

    def __enter__(self) -> Sequence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
