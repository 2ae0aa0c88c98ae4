"""Where worker processes come from: a fork server with torch loaded, or a fresh interpreter where there is none.

    first worker    the server starts and imports torch, which takes seconds
    every other     one fork

The server is multiprocessing's own, shared by all pipelines of this process, and ends with it. Workers do not import
the main module: a script is not run once more for each of them, and needs no guard.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
from multiprocessing import reduction, spawn, util
from multiprocessing.connection import Connection
from multiprocessing.context import set_spawning_popen
from multiprocessing.process import BaseProcess
from typing import Any

from labkit.errors import Unavailable
from labkit.sharding.worker import main

__all__ = ["ProcessRemote", "hatch", "stop_fork_server"]

_PRELOADED = ("torch", "labkit.sharding.preload")
_HAS_FORK_SERVER = "forkserver" in multiprocessing.get_all_start_methods()


class ProcessRemote:
    """A worker process and the controller's end of its pipe."""

    beats, blameless = True, False

    def __init__(self, process: BaseProcess, connection: Connection[Any, Any]) -> None:
        self._process = process
        self.connection = connection
        self.pid: int = process.pid or 0

    def kill(self) -> None:
        """SIGKILL; works on a stopped process too."""
        self._process.kill()

    def die(self) -> None:
        """The same: seen from here, nothing tells a crash from a kill."""
        self._process.kill()

    def hang(self) -> None:
        """SIGSTOP; raises `Unavailable` where there is no such thing."""
        if not hasattr(signal, "SIGSTOP"):
            raise Unavailable("this system cannot stop a process", "Use 'kill', or the thread carrier.")
        if self._process.exitcode is None:
            os.kill(self.pid, signal.SIGSTOP)

    def ending(self) -> str:
        """Its exit code or signal; waits a moment for it, since the pipe's end is seen earlier."""
        self._process.join(0.2)
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"worker process {self.pid} ended with exit code {code}"
        hint = " (this is how the kernel ends a process when memory runs out)" if -code == signal.SIGKILL else ""
        return f"worker process {self.pid} was ended by {signal.Signals(-code).name}{hint}"

    def close(self, timeout_s: float) -> None:
        """See `Remote`."""
        self.connection.close()
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._process.close()


def hatch(name: str) -> ProcessRemote:
    """Start a worker process; returns as soon as it exists, before it is ready."""
    ours, theirs = multiprocessing.Pipe()
    try:
        process = _new_process(name, theirs)
        process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ProcessRemote(process, ours)


def stop_fork_server() -> None:
    """End the fork server now; the next worker starts a new one. It ends by itself with this process."""
    if _HAS_FORK_SERVER:
        from multiprocessing import forkserver

        server: Any = forkserver._forkserver
        server._stop()


def _new_process(name: str, connection: Connection[Any, Any]) -> BaseProcess:
    if not _HAS_FORK_SERVER:
        return multiprocessing.get_context("spawn").Process(target=main, args=(connection,), name=name, daemon=True)
    _preload()
    return _Forked(target=main, args=(connection,), name=name, daemon=True)


def _preload() -> None:
    """Let the fork server import torch, along with what others have asked of it."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    wanted = [name for name in server._preload_modules if name != "__main__"]
    forkserver.set_forkserver_preload(list(dict.fromkeys([*wanted, *_PRELOADED])))


if _HAS_FORK_SERVER:
    from multiprocessing import forkserver, popen_forkserver

    def _close_all(*descriptors: int) -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    class _Launched(popen_forkserver.Popen):
        """Starts a process as multiprocessing does, but leaves the main module out of what it has to import."""

        def _launch(self, process_obj: BaseProcess) -> None:
            self.sentinel, request = forkserver.connect_to_new_process(self._pack(process_obj))
            # The child takes the end of this pipe for the end of its parent.
            kept = os.dup(request)
            self.finalizer = util.Finalize(self, _close_all, (kept, self.sentinel))
            with open(request, "wb", closefd=True) as stream:
                stream.write(self._packed)
            self.pid = forkserver.read_signed(self.sentinel)

        def _pack(self, process_obj: BaseProcess) -> list[int]:
            """Pickle the process; return the descriptors that go along."""
            data = spawn.get_preparation_data(process_obj.name)
            kept = {name: value for name, value in data.items() if not name.startswith("init_main")}
            stream = io.BytesIO()
            set_spawning_popen(self)
            try:
                reduction.dump(kept, stream)
                reduction.dump(process_obj, stream)
            finally:
                set_spawning_popen(None)
            self._packed = stream.getvalue()
            descriptors: list[int] = self._fds  # type: ignore[attr-defined]
            return descriptors

    class _Forked(BaseProcess):
        """A process of the fork server."""

        _start_method = "forkserver"

        @staticmethod
        def _Popen(process_obj: BaseProcess) -> _Launched:  # noqa: N802  # multiprocessing's name
            return _Launched(process_obj)
