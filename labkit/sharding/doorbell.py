"""Waiting for whoever speaks next: any worker, or a thread that rings."""

from __future__ import annotations

import contextlib
import multiprocessing
from multiprocessing.connection import Connection, wait
from threading import Lock
from typing import Any, Generic, TypeVar

__all__ = ["Doorbell"]

Tag = TypeVar("Tag")


class Doorbell(Generic[Tag]):
    """Watches connections, each under a tag. Watched and waited for by one thread, rung by any.

    >>> bell: Doorbell[str] = Doorbell()
    >>> bell.ring(); bell.wait(1.0), bell.wait(0.0)
    ([], [])
    >>> bell.close()
    """

    def __init__(self) -> None:
        self._hears, self._rings = multiprocessing.Pipe(duplex=False)
        self._lock = Lock()
        self._rung = False
        self._tags: dict[Connection[Any, Any], Tag] = {}

    def watch(self, connection: Connection[Any, Any], tag: Tag) -> None:
        """Report `tag` when `connection` has something to say, or has ended."""
        self._tags[connection] = tag

    def forget(self, connection: Connection[Any, Any]) -> None:
        """Watch `connection` no longer."""
        self._tags.pop(connection, None)

    def ring(self) -> None:
        """Let the waiting thread return now."""
        with self._lock, contextlib.suppress(OSError):
            if not self._rung:
                self._rung = True
                self._rings.send_bytes(b"!")

    def wait(self, timeout_s: float | None) -> list[Tag]:
        """Return the tags of those that have something to say; empty after a ring or `timeout_s`."""
        ready = wait([self._hears, *self._tags], timeout_s)
        if self._hears in ready:
            with self._lock:
                self._hears.recv_bytes()
                self._rung = False
        return [self._tags[one] for one in ready if one is not self._hears and one in self._tags]

    def close(self) -> None:
        """Give the pipe back."""
        with self._lock:
            self._hears.close()
            self._rings.close()
