"""An HTTP server on this machine, started for one run and ended with it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .coroutines import drive_calls
from .http_client import Client

__all__ = ["free_port", "open_loop", "running"]

READY_LIMIT_S = 60.0
STOP_LIMIT_S = 3.0


def open_loop(module: str, path: str, at_s: Sequence[float]) -> dict[str, Any]:
    """Start the server in `module`, post to `path` under an open load, and stop it."""
    with running(module) as (process, port):
        return asyncio.run(_driven(process, Client(port, path, b'{"row":1}'), at_s))


@contextmanager
def running(module: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server process and its port. What outlives the process is in the worker's group, which ends with it."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("start.py")), module, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, env={**os.environ, "NO_PROXY": "*"})
    try:
        yield process, port
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _driven(process: subprocess.Popen[bytes], client: Client, at_s: Sequence[float]) -> dict[str, Any]:
    try:
        await _ready(process, client)
        return await drive_calls(lambda number: client.post(), at_s)
    finally:
        client.close()


async def _ready(process: subprocess.Popen[bytes], client: Client) -> None:
    limit_s = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < limit_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        try:
            await client.post()
            return
        except OSError:
            await asyncio.sleep(0.1)
    raise RuntimeError(f"the server did not answer within {READY_LIMIT_S:.0f} s")
