"""Several workers that act together: asked at the same moment, and told to end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from labkit.bench.fleet import Fleet
from labkit.bench.system import System
from labkit.errors import LabkitError

__all__ = ["ask_all", "installed", "leave"]

Answers = dict[System, dict[str, Any]]


def ask_all(fleet: Fleet, do: str, requests: Mapping[System, Mapping[str, Any]]) -> Answers:
    """Send each system its own request, all at once, and wait for every answer.

    Raises `MeasureError` if one of them fails; the others have answered, or ended, by then.
    """
    with ThreadPoolExecutor(max(1, len(requests))) as threads:
        futures = {system: threads.submit(fleet.ask, system, do, **fields) for system, fields in requests.items()}
    return {system: future.result() for system, future in futures.items()}


def leave(fleet: Fleet, systems: Iterable[System]) -> None:
    """Let each system give back what it holds, then end its worker; one that fails to is ended all the same."""
    for system in systems:
        with contextlib.suppress(LabkitError):
            if fleet.runs(system):
                fleet.ask(system, "close", limit_s=20.0)
        fleet.release(system)


def installed(name: str, worker: str, package: str) -> System:
    """A peer that runs in labkit's own environment, with the version that is installed there.

    >>> str(installed("a peer", "its_worker", "no-such-package"))
    'a peer'
    """
    try:
        found = version(package)
    except PackageNotFoundError:
        found = ""
    return System(name, worker, "in-process", found)
