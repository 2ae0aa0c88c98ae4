"""All systems of one benchmark: started when they are first asked, ended together, and a failing peer remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from labkit.bench.environment import python_of
from labkit.bench.system import System
from labkit.bench.worker import Worker
from labkit.errors import LabkitError, RunVoid

__all__ = ["Fleet"]

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Fleet:
    """Workers by system. A peer that fails is out from then on; `failures` says why.

    A failure of labkit's own worker is raised: without it there is nothing to compare. A run that is void, because the
    generator was late, puts nobody out: its number alone is missing.
    """

    def __init__(self, systems: Iterable[System], say: Callable[[str], None] = lambda text: None) -> None:
        self.systems = tuple(systems)
        self.say = say
        self.failures: dict[System, str] = {}
        self._out: set[System] = set()
        self._workers: dict[System, Worker] = {}
        self._lock = Lock()

    def prepare(self) -> None:
        """Make the environments that are missing, before anything is measured."""
        for system in self.systems:
            self.attempt(system, python_of, system, self.say)

    def attempt(
        self, system: System, work: Callable[Given, Result], *args: Given.args, **kw: Given.kwargs
    ) -> Result | None:
        """What `work` returns; None if the peer is out, or fails now, or if the run was void."""
        if system in self._out:
            return None
        try:
            return work(*args, **kw)
        except LabkitError as error:
            void = isinstance(error, RunVoid)
            if system.kind == "own" and not void:
                raise
            self.failures[system] = error.problem
            if not void:
                self._out.add(system)
            self.say(f"{system} is left out: {error.problem}")
            return None

    def ask(self, system: System, do: str, **fields: Any) -> dict[str, Any]:
        """Ask the system's worker. That of an HTTP peer is started for this one request."""
        if system.kind == "http":
            with Worker(system, python_of(system)) as worker:
                return worker.ask(do, **fields)
        return self._worker(system).ask(do, **fields)

    def runs(self, system: System) -> bool:
        """Whether the system has a worker."""
        return system in self._workers

    def release(self, system: System) -> None:
        """End the system's worker, if it runs."""
        with self._lock:
            worker = self._workers.pop(system, None)
        if worker is not None:
            worker.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for system in tuple(self._workers):
            self.release(system)

    def _worker(self, system: System) -> Worker:
        with self._lock:
            if system not in self._workers:
                self._workers[system] = Worker(system, python_of(system, self.say))
            return self._workers[system]
