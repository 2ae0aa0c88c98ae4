"""Throw-away environments for peers, whose requirements clash with labkit's: made on first use, kept in the cache.

Each is a venv in `peers/` of the cache folder with the set of packages that the peer was tested with. Where that set
cannot be had (another Python, another system), pip chooses what goes with the peer's pinned version.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from labkit.bench.system import System
from labkit.devices import cache_dir
from labkit.errors import Unavailable

__all__ = ["python_of"]

_REQUIREMENTS = Path(__file__).with_name("peers") / "requirements"
_INSTALL_LIMIT_S = 900.0


def python_of(system: System, say: Callable[[str], None] = lambda text: None) -> Path:
    """The interpreter that `system` runs under; its environment is made if it is missing.

    Safe to call from several processes. Raises `Unavailable` with the last word of what failed (no network, say).
    """
    if not system.requirements:
        return Path(sys.executable)
    folder = cache_dir() / "peers" / f"{system.requirements}-{system.version}"
    folder.parent.mkdir(exist_ok=True)
    with FileLock(folder.with_suffix(f"{folder.suffix}.lock")):
        complete = folder / "complete"
        if not complete.is_file():
            say(f"making an environment for {system} in {folder}")
            _make(folder, system)
            complete.touch()
    return _interpreter(folder)


def _make(folder: Path, system: System) -> None:
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], system)
    install = [str(_interpreter(folder)), "-m", "pip", "install", "--quiet", "--retries", "1"]
    requirements = _REQUIREMENTS / f"{system.requirements}.txt"
    try:
        _run([*install, "--requirement", str(requirements)], system)
    except Unavailable:
        _run([*install, f"{system.requirements}=={system.version}"], system)


def _interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _run(command: list[str], system: System) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_LIMIT_S)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines() or ["no message"]
        said = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])
        raise _unavailable(system, said) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unavailable(system, str(error)) from error


def _unavailable(system: System, said: str) -> Unavailable:
    return Unavailable(f"{system} could not be installed: {said}", "Its rows are left out; connect to a package index.")
