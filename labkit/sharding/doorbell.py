"""Waiting for whoever speaks next: any worker, or a thread that rings."""

from __future__ import annotations

import contextlib
import multiprocessing
import selectors
import sys
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
        # With its number, which a connection that was closed meanwhile does not know any more.
        self._watched: dict[Connection[Any, Any], tuple[int, Tag]] = {}
        # Made once: to tell the system anew at every turn what is watched costs more than the turn itself. Pipes on
        # Windows are not among the things that a selector can watch.
        self._selector = None if sys.platform == "win32" else selectors.DefaultSelector()
        if self._selector is not None:
            self._selector.register(self._hears.fileno(), selectors.EVENT_READ, self._hears)

    def watch(self, connection: Connection[Any, Any], tag: Tag) -> None:
        """Report `tag` when `connection` has something to say, or has ended."""
        number = connection.fileno()
        self._watched[connection] = number, tag
        if self._selector is not None:
            self._selector.register(number, selectors.EVENT_READ, connection)

    def forget(self, connection: Connection[Any, Any]) -> None:
        """Watch `connection` no longer."""
        watched = self._watched.pop(connection, None)
        if watched is not None and self._selector is not None:
            self._selector.unregister(watched[0])

    def ring(self) -> None:
        """Let the waiting thread return now."""
        with self._lock, contextlib.suppress(OSError):
            if not self._rung:
                self._rung = True
                self._rings.send_bytes(b"!")

    def wait(self, timeout_s: float | None) -> list[Tag]:
        """Return the tags of those that have something to say; empty after a ring or `timeout_s`."""
        ready = self._ready(timeout_s)
        if self._hears in ready:
            with self._lock:
                self._hears.recv_bytes()
                self._rung = False
        return [self._watched[one][1] for one in ready if one in self._watched]

    def _ready(self, timeout_s: float | None) -> list[Any]:
        if self._selector is None:
            return wait([self._hears, *self._watched], timeout_s)
        return [key.data for key, _ in self._selector.select(timeout_s)]

    def close(self) -> None:
        """Give the pipe back."""
        with self._lock:
            if self._selector is not None:
                self._selector.close()
            self._hears.close()
            self._rings.close()
