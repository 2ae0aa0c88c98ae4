"""One hop through multiprocessing's pipe: arrays, pickled."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .hop import child, serve_hop

__all__ = ["PipeHop", "main"]


class PipeHop:
    """A duplex pipe to an echo."""

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self._echo = child(_echo, theirs)
        theirs.close()

    def value(self, size_bytes: int, times: int) -> Any:
        """An array."""
        return np.ones(size_bytes // 4, np.float32)

    def bounce(self, value: Any) -> Any:
        """There and back."""
        self._connection.send(value)
        return self._connection.recv()

    def close(self) -> None:
        """End the echo."""
        self._connection.close()
        self._echo.join()


def _echo(connection: Connection[Any, Any]) -> None:
    while True:
        try:
            connection.send(connection.recv())
        except (EOFError, OSError):
            return


def main() -> None:
    """Answer the bench's requests."""
    serve_hop(PipeHop)
