"""The one way onto the page."""

from __future__ import annotations

from typing import Any

from IPython.display import display

__all__ = ["put"]


def put(thing: Any, *, raw: bool = False) -> None:
    """Display a widget, or with `raw` a MIME bundle, below the cell that runs."""
    display(thing, raw=raw)  # type: ignore[no-untyped-call]
