"""Starts a file of this folder under any Python: `python start.py bentoml_cork` calls `bentoml_cork.main()`."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path

__all__ = ["main"]


def main() -> None:
    """Make this folder importable, as the package `peers` and after everything installed, and run the file named."""
    folder = Path(__file__).resolve().parent
    # Python put this folder first in the path, where its files would hide installed packages of the same name.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != folder]
    sys.path.append(str(folder.parent))
    name, *arguments = sys.argv[1:]
    system = import_module(f"peers.{name}")
    # A large package in memory makes every later garbage collection slow. What a system imports is not its cost.
    gc.collect()
    gc.freeze()
    system.main(*arguments)


# A server that spawns processes imports this file again in each of them; they must not start it anew.
if __name__ == "__main__":
    main()
