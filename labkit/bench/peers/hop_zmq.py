"""One hop through pyzmq: a PAIR of sockets over TCP on the loopback interface, without zmq's own copies."""

from __future__ import annotations

from typing import Any

import numpy as np

from .hop import child, serve_hop

__all__ = ["ZmqHop", "main"]


class ZmqHop:
    """A pair of sockets."""

    def __init__(self) -> None:
        import zmq

        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self._echo = child(_echo, port)

    def value(self, size_bytes: int, times: int) -> Any:
        """An array."""
        return np.ones(size_bytes // 4, np.float32)

    def bounce(self, value: Any) -> Any:
        """There and back; what comes is copied out of zmq's frame."""
        self._socket.send(value, copy=False)
        return _received(self._socket)

    def close(self) -> None:
        """End the echo and both sockets."""
        self._socket.send(b"")
        self._echo.join()
        self._socket.close(linger=0)
        self._context.term()


def _received(socket: Any) -> Any:
    return np.frombuffer(socket.recv(copy=False).buffer, np.float32).copy()


def _echo(port: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.connect(f"tcp://127.0.0.1:{port}")
        while (value := _received(socket)).size:
            socket.send(value, copy=False)


def main() -> None:
    """Answer the bench's requests."""
    serve_hop(ZmqHop)
