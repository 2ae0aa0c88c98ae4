"""Where labkit keeps what it can make again: weights, ceilings, settings of JupyterLab."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from labkit.errors import Unavailable

__all__ = ["cache_dir"]


def cache_dir() -> Path:
    """Return the cache folder, made if it was missing: `$LABKIT_CACHE`, else the platform's own place.

    That place is `$XDG_CACHE_HOME/labkit` or `~/.cache/labkit` on Linux, `~/Library/Caches/labkit` on macOS and
    `%LOCALAPPDATA%/labkit` on Windows. Everything in it may be deleted at any time.

    Raises `Unavailable` when the folder cannot be made.
    """
    folder = Path(os.environ.get("LABKIT_CACHE") or _platform_caches() / "labkit").expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"The cache folder {folder} cannot be made ({error.strerror})",
            "Set LABKIT_CACHE to a folder that you may write to.",
        ) from error
    return folder


def _platform_caches() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
