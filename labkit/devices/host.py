"""The host's own memory, as far as this process may use it: a container often gets less than the machine has."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

__all__ = ["memory_bytes"]

# Where control groups (version 2, then 1) put a container's limit and its use.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def memory_bytes() -> tuple[int, int]:
    """Return free and total bytes.

    Read from Linux's /proc/meminfo and the container's limit; elsewhere from psutil when it is installed, and without
    it free is told as the total (macOS) or both as 0 (unknown).
    """
    free, total = _machine_memory()
    for limit_file, used_file in _LIMITS:
        limit, used = _number(limit_file), _number(used_file)
        if limit is not None and limit < total:
            free, total = min(free, max(0, limit - (used or 0))), limit
    return free, total


def _machine_memory() -> tuple[int, int]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return _portable_memory()
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return kilobytes["MemAvailable"] * 1024, kilobytes["MemTotal"] * 1024


def _portable_memory() -> tuple[int, int]:
    try:
        memory = importlib.import_module("psutil").virtual_memory()
        return int(memory.available), int(memory.total)
    except ImportError:
        pass
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = 0
    return total, total


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or "max"
        return None
