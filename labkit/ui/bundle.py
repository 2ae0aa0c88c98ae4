"""A plotly figure as MIME bundles: drawn where plotly.js is, told in words where it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from typing import Any

from labkit.ui.words import number

__all__ = ["FIGURE_CLASS", "PLOTLY_MIME", "data_table", "figure_bundle"]

PLOTLY_MIME = "application/vnd.plotly.v1+json"
FIGURE_CLASS = "labkit-figure"

_CONFIG = {"displaylogo": False, "responsive": True}
_TABLE_ROWS = 100

# Runs where it stands. If plotly.js comes later on the page it waits for the page to be loaded; if it never comes, the
# words stay. The figure is found by the script's own place, because one figure may stand on a page twice.
_SCRIPT = """(() => {
  const box = document.currentScript?.closest(".labkit-figure") ?? document.getElementById("ID");
  const draw = () => {
    if (!window.Plotly || box.dataset.drawn) return;
    box.dataset.drawn = "true";
    const figure = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    const plot = box.querySelector(".labkit-plotly");
    plot.replaceChildren();
    window.Plotly.newPlot(plot, figure.data, figure.layout, figure.config);
  };
  if (window.Plotly || document.readyState === "complete") draw();
  else window.addEventListener("load", draw);
})();"""


def figure_bundle(content: dict[str, Any], alt: str) -> dict[str, Any]:
    """The bundle of the figure `content` (plotly's JSON: data and layout), which `alt` tells in words.

    >>> sorted(figure_bundle({"data": [], "layout": {}}, "Nothing yet."))
    ['application/vnd.plotly.v1+json', 'text/html', 'text/plain']
    """
    figure = {**content, "config": _CONFIG}
    return {PLOTLY_MIME: figure, "text/html": _html(figure, alt), "text/plain": alt}


def data_table(content: dict[str, Any]) -> dict[str, str]:
    """The figure's numbers as a table that can be folded out, and as one line of plain text."""
    traces = [trace for trace in content["data"] if trace.get("x")]
    count = sum(len(trace["x"]) for trace in traces)
    body = "".join(_row("td", cells) for trace in traces for cells in _cells(trace))
    table = f"<table><thead>{_row('th', _labels(content['layout']))}</thead><tbody>{body}</tbody></table>"
    return {
        "text/html": f'<details class="labkit-numbers-table"><summary>Data as a table</summary>'
        f'<div style="max-height:24em;overflow:auto">{table}</div></details>',
        "text/plain": f"Data: {count} points in {len(traces)} series",
    }


def _html(figure: dict[str, Any], alt: str) -> str:
    # "<" would let a label end the script element.
    text = json.dumps(figure, sort_keys=True, separators=(",", ":")).replace("<", "\\u003c")
    name = f"{FIGURE_CLASS}-{sha256(text.encode()).hexdigest()[:12]}"
    height = figure["layout"].get("height", 450)
    return (
        f'<div id="{name}" class="{FIGURE_CLASS}" role="img" aria-label="{escape(alt)}">'
        f'<div class="labkit-plotly" style="min-height:{height}px"><p>{escape(alt)}</p></div>'
        f'<script type="application/json">{text}</script><script>{_SCRIPT.replace("ID", name)}</script></div>'
    )


def _labels(layout: dict[str, Any]) -> list[str]:
    """Headings: the axes' own labels when there is one plot, else just x and y."""
    if "xaxis2" in layout:
        return ["series", "x", "y"]
    texts = [layout.get(axis, {}).get("title", {}).get("text", axis[0]) for axis in ("xaxis", "yaxis")]
    return ["series", *texts]


def _cells(trace: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    step = -(-len(trace["x"]) // _TABLE_ROWS)
    for x, y in zip(trace["x"][::step], trace["y"][::step], strict=True):
        if x is not None:  # the gap between two bars
            yield str(trace.get("name", "")), _text(x), _text(y)


def _text(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _row(tag: str, cells: Any) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
