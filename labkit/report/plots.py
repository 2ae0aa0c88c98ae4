"""Stored figures in an exported page: each a small block of JSON, drawn by one plotly.js in the page's head."""

from __future__ import annotations

from typing import Any

from nbformat import NotebookNode
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

from labkit.ui.bundle import FIGURE_CLASS, PLOTLY_MIME, figure_bundle

__all__ = ["as_html", "has_figures", "plotly_script"]


def as_html(data: dict[str, Any]) -> None:
    """Give a bundle that holds a figure for plotly's own renderer alone a form that any browser draws.

    labkit's figures bring that form along; a plain `figure.show()` in a notebook does not.
    """
    if PLOTLY_MIME in data and "text/html" not in data:
        figure = data[PLOTLY_MIME]
        content = {"data": figure["data"], "layout": figure.get("layout", {})}
        data["text/html"] = figure_bundle(content, str(data.get("text/plain") or "A figure"))["text/html"]


def has_figures(notebook: NotebookNode) -> bool:
    """Whether any output needs plotly.js.

    >>> has_figures(NotebookNode(cells=[]))
    False
    """
    bundles = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    return any(PLOTLY_MIME in data or FIGURE_CLASS in data.get("text/html", "") for data in bundles)


def plotly_script() -> str:
    """plotly.js of the installed plotly, as one script element."""
    return f"<script>{get_plotlyjs()}</script>"
