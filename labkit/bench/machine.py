"""What a benchmark ran on, for the first line of its table."""

from __future__ import annotations

import os

from labkit.measure import collect

__all__ = ["facts"]


def facts() -> tuple[tuple[str, str], ...]:
    """Names and values: processor, cores, versions, revision, and how busy the machine is now."""
    origin = collect()
    dirty = " with changes" if origin.git_dirty else ""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg()) if hasattr(os, "getloadavg") else ""
    found = (
        ("cpu", origin.cpu),
        ("cores", str(origin.cores)),
        *origin.versions,
        ("revision", f"{origin.git_revision[:12]}{dirty}"),
        ("load average at the end", load),
    )
    return tuple((name, text) for name, text in found if text)
