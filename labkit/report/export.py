"""One executed notebook as one HTML file that opens offline.

A stored figure holds its numbers and no plotting library. Where a page has figures, plotly.js (4.8 MB) goes once into
its head, from the installed plotly; no other script, style, font or image is loaded from anywhere, so the file is
the same on a train. Code is folded. The tags of a cell decide further: `remove-cell` leaves it out, `hide-input` leaves
out its code. There is no TeX: formulas are written in Unicode.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from traitlets.config import Config

from labkit.report.failure import FAILURE_TAG
from labkit.report.outline import add_outline, take_title
from labkit.report.plots import as_html, has_figures, plotly_script
from labkit.report.progress import caption
from labkit.report.row import ReportRow

__all__ = ["export_html"]

_TEMPLATES = Path(__file__).parent / "template"
_PRIORITY = [
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "text/plain",
]
_WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
_WIDGET_NOTE = '<p class="note">A live panel stands here when the notebook is open in JupyterLab.</p>'


@dataclass(frozen=True, slots=True)
class _Page:
    """What the template shows beside the cells."""

    title: str
    banner: str = ""
    verdict: str = ""
    byline: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    command: str = ""


def export_html(
    notebook: Path, html: Path | None = None, *, row: ReportRow | None = None, language: str = "en"
) -> Path:
    """Write `notebook` as one HTML file (default: beside it) and return its path.

    `row`, where there is one, gives the verdict under the title and the table of how the report was made.
    """
    cells = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    page = _page(cells, row, notebook.stem)
    _prepare(cells)
    with_figures = has_figures(cells)
    text, _ = _exporter(language, page).from_notebook_node(cells)
    text = add_outline(text)
    if with_figures:
        # Put in last, so that five megabytes of script pass through no template and no parser.
        text = text.replace("</head>", f"{plotly_script()}\n</head>", 1)
    html = html or notebook.with_suffix(".html")
    html.write_text(text, encoding="utf-8")
    return html


def _exporter(language: str, page: _Page) -> HTMLExporter:
    tags = {"enabled": True, "remove_cell_tags": {"remove-cell"}, "remove_input_tags": {"hide-input"}}
    # A cell that prints as it goes is stored as many outputs, which would be shown as many boxes.
    joined = {"enabled": True}
    base = {"display_data_priority": _PRIORITY}
    config = Config({"TagRemovePreprocessor": tags, "CoalesceStreamsPreprocessor": joined, "NbConvertBase": base})
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        config=config,
        template_name="labkit",
        extra_template_basedirs=[str(_TEMPLATES)],
        language_code=language,
        exclude_anchor_links=True,
        mathjax_url="",
        require_js_url="",
        jupyter_widgets_base_url="",
    )
    exporter.environment.globals["page"] = page
    return exporter


def _prepare(notebook: NotebookNode) -> None:
    """Give each code cell the caption of its fold, and each figure a form that a browser draws."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata["labkit_caption"] = _caption(cell)
            for output in cell.outputs:
                if _WIDGET_MIME in output.get("data", {}):
                    output.data = {"text/html": _WIDGET_NOTE}
                elif "data" in output:
                    as_html(output.data)


def _caption(cell: NotebookNode) -> str:
    tags = cell.metadata.get("tags", [])
    if "injected-parameters" in tags:
        return "Parameters of this run"
    return "Parameters and their defaults" if "parameters" in tags else f"Code: {caption(cell.source)}"


def _page(notebook: NotebookNode, row: ReportRow | None, name: str) -> _Page:
    first = notebook.cells[0] if notebook.cells else None
    failed = first is not None and FAILURE_TAG in first.metadata.get("tags", [])
    banner = notebook.cells.pop(0).source if failed else ""
    title = take_title(notebook) or name
    if row is None:
        return _Page(title, banner)
    when = row.started_utc.replace("T", " ").replace("Z", " UTC")
    byline = f"{when} · {row.wall_s:.0f} s · labkit {row.versions.get('labkit', '')}"
    verdict = "" if _shows_verdict(notebook) else row.verdict
    return _Page(title, banner, verdict, byline, _facts(row), row.command)


def _shows_verdict(notebook: NotebookNode) -> bool:
    """Whether the notebook itself shows its verdict, as an element of that class."""
    bundles = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    return any('class="verdict"' in data.get("text/html", "") for data in bundles)


def _facts(row: ReportRow) -> tuple[tuple[str, str], ...]:
    def pairs(values: dict[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in values.items()) or "none"

    return (
        ("Report", row.report),
        ("Status", row.status),
        ("Started", row.started_utc),
        ("Wall time", f"{row.wall_s:.1f} s"),
        ("Parameters", ", ".join(f"{name} = {value}" for name, value in row.parameters.items()) or "none"),
        ("Versions", pairs(row.versions)),
    )
