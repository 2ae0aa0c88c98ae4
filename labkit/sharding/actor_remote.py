"""A worker on a Ray cluster as its controller sees it: a pipe, and behind it two threads that make calls of it.

    conductor ──pipe──▶ mouth: tell, work ─▶ actor
              ◀──pipe── ear:   hear        ◀─ actor      its death ends this call, and with it the pipe

So the conductor treats it like any other worker: what it says arrives in order, and when it is gone the pipe ends.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from itertools import count
from threading import Event, Thread, current_thread
from typing import Any

from labkit.sharding.clock import Offset
from labkit.sharding.cluster import Cluster
from labkit.sharding.depot import Source
from labkit.sharding.host import Hello
from labkit.sharding.job import Done, Failed, Job, Key, Load, decode, encode
from labkit.sharding.objects import Objects, Slot
from labkit.sharding.wire import Wire
from labkit.sharding.wiring import Wiring

__all__ = ["ActorRemote"]

_log = logging.getLogger(__name__)

_ROOM_S = 1.0
_CLOCKED_S = 30.0
_FIRST_PROBES = 5


class ActorRemote:
    """A worker in an actor.

    `settles` says of which jobs the outcome has to be on the controller's host, `check` raises if no host that is left
    has room for a worker that has not started yet, `on_end` is told when it is gone.
    """

    beats = True

    def __init__(
        self,
        number: int,
        actor: Any,
        ray: Any,
        objects: Objects,
        wiring: Wiring,
        cluster: Cluster,
        *,
        settles: Callable[[Job], bool],
        check: Callable[[], None],
        on_end: Callable[[ActorRemote], None],
    ) -> None:
        self.number, self.backend, self.address = number, "", ("", 0)
        self.pid, self.node, self.blameless = 0, "", False
        self.over = Event()
        self.connection, self._line = multiprocessing.Pipe()
        self._actor, self._ray, self._objects, self._wiring, self._cluster = actor, ray, objects, wiring, cluster
        self._settles, self._check, self._on_end = settles, check, on_end
        self._numbers = count()
        self._jobs: dict[Key, tuple[Job, Wire | None]] = {}
        self._offset, self._clocked_s = Offset(), 0.0
        self._reason = "the actor was ended"
        self._threads = [
            Thread(target=task, name=f"labkit-actor-{number}", daemon=True) for task in (self._speak, self._listen)
        ]
        for thread in self._threads:
            thread.start()

    def kill(self) -> None:
        """End it; Ray's own daemon on its host also ends a process that is stopped."""
        self.over.set()
        self.connection.close()

    def die(self) -> None:
        """Let it end itself."""
        self._actor.die.remote()

    def hang(self) -> None:
        """Let it stop itself."""
        self._actor.hang.remote()

    def ending(self) -> str:
        """What Ray says about it."""
        return self._reason

    def close(self, timeout_s: float) -> None:
        """See `Remote`; it is dead to us at once, and its process ends within seconds even if it hangs."""
        self.kill()
        self.join(timeout_s)

    def join(self, timeout_s: float) -> None:
        """Wait for both threads, but `timeout_s` at most."""
        end_s = time.perf_counter() + timeout_s
        for thread in self._threads:
            if thread is not current_thread():
                thread.join(max(0.0, end_s - time.perf_counter()))

    def call(self, method: str, *arguments: Any) -> Any:
        """Call the actor; returns a reference at once."""
        return getattr(self._actor, method).remote(*arguments)

    # The mouth.

    def _speak(self) -> None:
        try:
            while (data := self._told()) is not None:
                self._pass_on(data)
        except Exception:
            _log.exception("worker %d cannot be told anything more", self.number)
        self.over.set()
        with contextlib.suppress(Exception):
            self._ray.kill(self._actor, no_restart=True)
            self._on_end(self)
        self._threads[1].join()
        self._line.close()

    def _told(self) -> bytes | None:
        try:
            return self._line.recv_bytes()
        except (EOFError, OSError):
            # So a pipe says that its other end is closed, between two messages or within one: `kill` does that.
            return None

    def _pass_on(self, data: bytes) -> None:
        message = decode(data)
        if isinstance(message, Job):
            self._give(message, data)
            return
        if isinstance(message, Load):
            self.backend = self._cluster.backend_for(message.device)
        self.call("tell", next(self._numbers), data)

    def _give(self, job: Job, data: bytes) -> None:
        source, target = self._objects.find(job.source), self._objects.find(job.target)
        if source is None or target is None:
            # The pipeline has given this worker up; the end of the pipe follows.
            return
        at = self._source(job.source, source)
        self._jobs[job.key] = job, at.wire
        keep = bool(self.backend) and not self._settles(job)
        target.ref = self.call("work", next(self._numbers), data, at, job.target, keep)
        target.holder = self if keep else None

    def _source(self, number: int, slot: Slot) -> Source:
        """How this worker comes by the value in a slot."""
        limit_s, holder = self._cluster.limit_s(slot.size_bytes), slot.holder
        if holder is self:
            return Source(number, (), limit_s)
        if holder is not None and holder.backend == self.backend:
            wire, order = self._wiring.next(holder, self)
            return Source(number, (holder.call("send", wire, order, number),), limit_s, wire)
        if holder is not None:
            slot.ref, slot.holder = holder.call("fetch", number), None
        return Source(number, (slot.ref,), limit_s)

    # The ear.

    def _listen(self) -> None:
        try:
            self._greet(self._first_word())
            while True:
                for data in self._ray.get(self.call("hear")):
                    self._report(decode(data))
                self._set_clock(1)
        except Exception as error:
            self._end(error)

    def _first_word(self) -> Hello:
        """Wait for the actor to start; in vain if the hosts that are left have no room for it."""
        hello, end_s = self.call("hello"), time.perf_counter() + self._cluster.start_s
        while not self._ray.wait([hello], timeout=_ROOM_S)[0]:
            self._check()
            if time.perf_counter() > end_s:
                raise TimeoutError(f"Ray has not started it within {self._cluster.start_s:.0f} s")
        word: Hello = self._ray.get(hello)
        return word

    def _greet(self, hello: Hello) -> None:
        self.pid, self.node, self.address = hello.pid, hello.node, (hello.host, hello.port)
        self._set_clock(_FIRST_PROBES)

    def _set_clock(self, probes: int) -> None:
        if time.perf_counter() - self._clocked_s < _CLOCKED_S:
            return
        for _ in range(probes):
            asked_s = time.perf_counter()
            theirs_s = self._ray.get(self.call("clock"), timeout=self._cluster.start_s)
            self._offset.add(asked_s=asked_s, theirs_s=theirs_s, heard_s=time.perf_counter())
        self._clocked_s = time.perf_counter()

    def _report(self, message: Any) -> None:
        """Pass on what the worker says, in our time, once the controller can have the outcome that it speaks of."""
        if isinstance(message, (Done, Failed)):
            job, wire = self._jobs.pop(message.key)
            message = message._replace(
                started_s=self._offset.ours_s(message.started_s), finished_s=self._offset.ours_s(message.finished_s)
            )
            if isinstance(message, Done):
                message = self._settled(job, message)
            elif message.kind == "lost" and wire is not None:
                self._wiring.cut(wire)
        self._line.send_bytes(encode(message))

    def _settled(self, job: Job, done: Done) -> Done | Failed:
        slot = self._objects.find(job.target)
        if slot is not None:
            slot.size_bytes = done.written_bytes
        if not self._settles(job):
            return done
        try:
            self._objects.settle(job.target, self._cluster.limit_s(done.written_bytes))
        except Exception as error:
            text = f"the outcome cannot be had: {_described(error)}"
            return Failed(done.key, "lost", text, b"", done.started_s, done.finished_s)
        return done

    def _end(self, error: Exception) -> None:
        """Say why, and let the pipe end after what has been said."""
        self.blameless = self._is_of_the_host(error)
        where = f" (process {self.pid} on {self.address[0]})" if self.pid else ""
        self._reason = f"its actor{where} is gone: {_described(error)}"
        self.over.set()
        # The mouth still reads from the other direction, so it is only half closed.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._line.fileno())) as line:
            line.shutdown(socket.SHUT_WR)

    def _is_of_the_host(self, error: Exception) -> bool:
        """Whether the whole host is lost or out of reach, so that no microbatch is to blame."""
        unavailable = isinstance(error, self._ray.exceptions.ActorUnavailableError)
        return unavailable or "node has died" in str(error)


def _described(error: Exception) -> str:
    """The line of Ray's message that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "because" in line or "unavailable" in line]
    return (telling or lines or [type(error).__name__])[0][:300]
