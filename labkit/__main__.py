"""The `labkit` command, with a clear word where the packages that it needs are missing."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say which extra brings it."""
    try:
        from labkit.cli import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("labkit"):
            raise
        sys.exit(f"labkit: this command needs {missing.name}, which is not installed. Run: pip install 'labkit[lab]'")
    app()


if __name__ == "__main__":
    main()
