"""What the controller needs of a worker, whatever carries it."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any, Protocol

__all__ = ["Remote"]


class Remote(Protocol):
    """A worker as seen from the controller: a pipe, and a way to end it."""

    @property
    def connection(self) -> Connection[Any, Any]:
        """The pipe; it comes to its end when the worker does."""
        ...

    @property
    def pid(self) -> int:
        """The process in which it runs."""
        ...

    @property
    def beats(self) -> bool:
        """Whether it gives signs of life while it works."""
        ...

    @property
    def blameless(self) -> bool:
        """Whether its whole host was lost, so that nothing it was given can have killed it."""
        ...

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        ...

    def hang(self) -> None:
        """Stop it from answering (for tests and labs)."""
        ...

    def die(self) -> None:
        """Let it die as if by itself (for tests and labs)."""
        ...

    def ending(self) -> str:
        """Why it ended, in words."""
        ...

    def close(self, timeout_s: float) -> None:
        """Close the pipe, wait for its end, and leave nothing behind; a worker that does not end is killed."""
        ...
