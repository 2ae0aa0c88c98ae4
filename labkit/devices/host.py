"""The host itself: its memory, as far as this process may use it, and how busy others keep it.

A container often gets less memory than the machine has; a number measured while others compute is too low.
"""

from __future__ import annotations

import importlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Busy", "memory_bytes"]

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


@dataclass(frozen=True, slots=True)
class Busy:
    """A moment, to be asked later how much of the machine others have used since (Linux; elsewhere it tells 0)."""

    at_s: float
    others_s: float

    @classmethod
    def now(cls) -> Busy:
        """Take the time and the processor seconds that other processes have used so far."""
        return cls(time.perf_counter(), _busy_s() - time.process_time())

    def others_share(self) -> float:
        """Return the share of all cores that other processes have used since then, from 0 to 1."""
        later = Busy.now()
        core_seconds = (later.at_s - self.at_s) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (later.others_s - self.others_s) / core_seconds))


def _busy_s() -> float:
    """Return the processor seconds of all processes since the start, those taken by other virtual machines included."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return time.process_time()
    idle, waiting = ticks[3:5]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def _machine_memory() -> tuple[int, int]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return _portable_memory()
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return kilobytes["MemAvailable"] * 1024, kilobytes["MemTotal"] * 1024


def _portable_memory() -> tuple[int, int]:
    try:
        psutil = importlib.import_module("psutil")
    except ImportError:
        # The engines run without it, and then the system's own word has to do.
        total = _physical_bytes()
        return total, total
    memory = psutil.virtual_memory()
    return int(memory.available), int(memory.total)


def _physical_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        # Windows has no sysconf, and not every Unix knows these two names.
        return 0


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such group, or "max"
        return None
