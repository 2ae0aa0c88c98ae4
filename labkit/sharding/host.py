"""The Ray actor that hosts one worker: its loop is that of a worker process, its pipe is made of actor calls.

    controller ── tell, work ──▶ inbox ──▶ │ Serving, a thread │ ──▶ outbox ── hear ──▶ controller
                       ▲                   └────────┬──────────┘
                       └──── the outcome ◀──────────┘

Calls are coroutines: any number of them wait at the same time, and none of them computes. Ray promises no order among
them, so each message has a number. Values are fetched while the one before is being computed.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from collections import deque
from collections.abc import Iterable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, cast

from labkit.devices import keep_freed_memory
from labkit.sharding.depot import Depot, Source
from labkit.sharding.exchange import Exchange
from labkit.sharding.job import Failed, Job, Tune
from labkit.sharding.lost import Lost
from labkit.sharding.pieces import Piece, Pieces
from labkit.sharding.serving import Serving
from labkit.sharding.wire import Announced, Wire

__all__ = ["Hello", "Host"]


class Hello(NamedTuple):
    """From a new worker: the process and the host where it is, and the port of its store (0: it has none)."""

    pid: int
    node: str
    host: str
    port: int


class Host:
    """One worker. `pieces` are the weights with their references, `threads` what torch may use for one operation."""

    def __init__(self, size_bytes: int, pieces: Iterable[tuple[Piece, Any]], *, threads: int, listens: bool) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._address = str(self._ray.util.get_node_ip_address())
        self._listens = listens
        # A wire that fails is cut and replaced; NCCL's watchdog would end the process instead.
        os.environ.update(TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_ENABLE_MONITORING="0")
        keep_freed_memory()
        self._exchange = Exchange(self._address)
        self._depot = Depot(Pieces(size_bytes, pieces), self._exchange)
        self._line = _Line()
        serving = _HostServing(cast("Connection[Any, Any]", self._line), self._depot, threads)
        for task in (serving.run, serving.beat):
            Thread(target=task, name=f"labkit-{task.__name__}", daemon=True).start()

    async def hello(self) -> Hello:
        """Say where it is."""
        node = self._ray.get_runtime_context().get_node_id()
        return Hello(os.getpid(), node, self._address, self._exchange.listen() if self._listens else 0)

    async def clock(self) -> float:
        """What time it is here."""
        return time.perf_counter()

    async def tell(self, number: int, message: bytes) -> None:
        """Take message `number`."""
        self._line.put(number, message)

    async def work(self, number: int, message: bytes, source: Source, target: int, keep: bool) -> Any:
        """Take message `number`, a job; return the outcome's bytes, or None if it is kept here or there is none."""
        outcome = self._depot.expect(target, keep=keep)
        self._depot.bring(source, await self._fetched(source))
        self._line.put(number, message)
        return await asyncio.wrap_future(outcome)

    async def _fetched(self, source: Source) -> Any:
        try:
            return await asyncio.wait_for(source.refs[0], source.limit_s) if source.refs else None
        except TimeoutError:
            return Lost(f"it has not arrived within {source.limit_s:.1f} s")
        except Exception as error:
            return Lost(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")

    async def hear(self) -> list[bytes]:
        """Wait until the worker says something; return all of it."""
        return await self._line.hear()

    async def send(self, wire: Wire, order: int, slot: int) -> Announced:
        """Begin to send a value that is kept here; raises `Lost`."""
        return self._depot.send(wire, order, slot)

    async def fetch(self, slot: int) -> Any:
        """The bytes of a value that is kept here; raises `Lost`."""
        return self._depot.fetch(slot)

    async def cut(self, name: str) -> None:
        """Let go of a wire."""
        self._exchange.cut(name)

    async def die(self) -> None:
        """End as if by itself (for tests and labs)."""
        os.kill(os.getpid(), signal.SIGKILL)

    async def hang(self) -> None:
        """Stop (for tests and labs)."""
        os.kill(os.getpid(), signal.SIGSTOP)


class _HostServing(Serving):
    def __init__(self, connection: Connection[Any, Any], depot: Depot, threads: int) -> None:
        super().__init__(connection, depot, owns_process=True)
        self._depot, self._threads = depot, threads

    def _tune(self, tune: Tune) -> None:
        """Use the processors that Ray gave it; the controller counts those of its own machine."""
        super()._tune(tune._replace(threads=self._threads))

    def _fail(self, job: Job, error: BaseException, begun_s: float) -> None:
        self._depot.give_up(job.target)
        if isinstance(error, Lost):
            self._send(Failed(job.key, "lost", str(error), b"", begun_s, time.perf_counter()))
        else:
            super()._fail(job, error, begun_s)


class _Line:
    """What the worker takes for its pipe."""

    def __init__(self) -> None:
        self._early: dict[int, bytes] = {}
        self._next = 0
        self._inbox: SimpleQueue[bytes] = SimpleQueue()
        self._outbox: deque[bytes] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell = asyncio.Event()

    def put(self, number: int, message: bytes) -> None:
        self._early[number] = message
        while self._next in self._early:
            self._inbox.put(self._early.pop(self._next))
            self._next += 1

    def recv_bytes(self) -> bytes:
        return self._inbox.get()

    def send_bytes(self, message: bytes) -> None:
        self._outbox.append(message)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._bell.set)

    async def hear(self) -> list[bytes]:
        self._loop = asyncio.get_running_loop()
        while not self._outbox:
            self._bell.clear()
            if not self._outbox:
                await self._bell.wait()
        return [self._outbox.popleft() for _ in range(len(self._outbox))]
