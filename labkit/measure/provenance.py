"""Where a number was made: code revision, machine and software, collected once per row that is stored."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import labkit

__all__ = [
    "Provenance",
    "collect",
    "cpu_model",
    "git_state",
    "usable_cores",
]

GIT_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Provenance:
    """Facts about code and machine; an empty text (or None) means that it could not be found out.

    `git_dirty` says whether files under version control were changed since `git_revision`.
    """

    git_revision: str
    git_dirty: bool | None
    machine: str
    cpu: str
    cores: int
    threads: int
    versions: tuple[tuple[str, str], ...]


def collect() -> Provenance:
    """The facts of now. The machine's are read once per process, git's each time: code changes between two runs."""
    # torch loads here and not with this module, so that reading stored results stays cheap.
    import torch

    from labkit.devices import versions

    revision, dirty = git_state(Path(labkit.__file__).parent)
    return Provenance(
        git_revision=revision,
        git_dirty=dirty,
        machine=platform.node(),
        cpu=cpu_model(),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        versions=tuple(sorted(dict(versions()).items())),
    )


def git_state(folder: Path) -> tuple[str, bool | None]:
    """Revision and dirty flag of the checkout that `folder` is part of; `("", None)` if it is part of none.

    A package installed inside somebody's repository is not part of it: its files are not under version control there.
    """
    revision = _git(folder, "rev-parse", "HEAD")
    tracked = _git(folder, "ls-files", "--", ".")
    if not revision or not tracked:
        return "", None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return revision, None if changes is None else bool(changes)


def usable_cores() -> int:
    """The CPU cores that this process may use, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """The processor's name as the operating system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(folder: Path, *words: str) -> str | None:
    """What git prints, None if it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=GIT_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
