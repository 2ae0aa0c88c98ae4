"""A small HTTP/1.1 client for one kind of request: keep-alive connections, as many as are needed, nothing else.

Written by hand because the generator shares the machine with the server that it measures: it must cost little.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Client"]


class Client:
    """Posts one fixed JSON body to one path on this machine."""

    def __init__(self, port: int, path: str, body: bytes) -> None:
        self.port = port
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self._free: deque[_Connection] = deque()

    async def post(self) -> bytes:
        """Send the request and return the answer's body; raises `ConnectionError` for any status but 200."""
        connection = await self._connected()
        body = await connection.exchange(self._request)
        self._free.append(connection)
        return body

    def close(self) -> None:
        """Close the connections that are free."""
        for connection in self._free:
            connection.close()

    async def _connected(self) -> _Connection:
        while self._free:
            connection = self._free.pop()
            if connection.alive:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, "127.0.0.1", self.port)
        return connection


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.alive = False
        self._received = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.alive = True

    def connection_lost(self, error: Exception | None) -> None:
        self.alive = False
        self._settle(error or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self._received = b""
        status = head.split(b" ", 2)[1]
        self._settle(body if status == b"200" else ConnectionError(f"status {status.decode()}"))

    async def exchange(self, request: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self._transport.close()

    def _settle(self, outcome: bytes | Exception) -> None:
        if self._answer is None or self._answer.done():
            return
        if isinstance(outcome, Exception):
            self._answer.set_exception(outcome)
        else:
            self._answer.set_result(outcome)


def _length(head: bytes) -> int:
    """The body's length; the servers measured here always name it."""
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    raise ConnectionError("the answer does not name its length")
