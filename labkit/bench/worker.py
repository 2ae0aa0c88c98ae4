"""The bench's end of a worker: starts the process, asks, and ends it with everything that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any

from labkit.bench.system import System
from labkit.errors import MeasureError

__all__ = ["Worker"]

_START = Path(__file__).with_name("peers") / "start.py"
_END_LIMIT_S = 5.0
# Nothing that is measured here has a reason to talk to the outside.
_QUIET = {"BENTOML_DO_NOT_TRACK": "True", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}


class Worker:
    """A process that runs `system` under the interpreter `python`; see `labkit.bench.peers.protocol`."""

    def __init__(self, system: System, python: Path) -> None:
        self.system = system
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            [str(python), str(_START), system.worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **_QUIET},
            start_new_session=True,
        )
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        Thread(target=self._listen, daemon=True).start()

    def ask(self, do: str, limit_s: float = 120.0, **fields: Any) -> dict[str, Any]:
        """Send one request and return the answer; raises `MeasureError` if there is none, or the answer is an error."""
        assert self._process.stdin is not None
        with suppress(OSError):  # a process that has ended is noticed by its missing answer
            self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=limit_s)
        except Empty:
            raise self._failed(f"gave no answer within {limit_s:g} s") from None
        if not line:
            raise self._failed("ended without an answer")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failed(f"raised {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process group; safe to call twice."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT_S)
        # The group outlives its leader for as long as anything that the worker started is still alive.
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._log.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _failed(self, what: str) -> MeasureError:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        last = f" (its last word: {lines[-1]})" if lines else ""
        return MeasureError(f"the worker of {self.system} {what}{last}", "Run the bench again on a quiet machine.")
