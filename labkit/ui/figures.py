"""Static figures: what a lab leaves behind when its numbers are in.

The figures are plotly's, but they are stored without plotly.js (4.8 MB each time). A figure is shown as one MIME
bundle: JupyterLab draws the `application/vnd.plotly.v1+json` part itself; an exported page draws the `text/html` part
as soon as the exporter has put plotly.js on the page, once; everything else shows the `text/plain` part, the figure in
words. Below it come the numbers as a table. Nothing is random: the same numbers give the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]
from plotly.subplots import make_subplots  # type: ignore[import-untyped]

from labkit.labs import Point
from labkit.ui.bundle import data_table, figure_bundle
from labkit.ui.chart import Chart, Level
from labkit.ui.screen import put
from labkit.ui.series import Curve
from labkit.ui.theme import INK, pen
from labkit.ui.words import describe, unit

__all__ = ["charts", "lines", "show"]

_INK = "#1f2328"
_FAINT = "#d8dee4"
_PLOT, _BETWEEN, _LINE = 226, 122, 20  # pixels: a plot's height, what is between two, and a legend's line
_PAGE, _HALF = 760, 440  # pixels of a legend that fit across a page, and above one of two plots
_COUNTABLE = 12  # what has no unit is counted; so far each number has its tick
_MARK = 12  # pixels of a curve that is one point
_MARKED = 40  # curves of at most so many points show each point

_AXIS = {"gridcolor": _FAINT, "linecolor": _INK, "ticks": "outside", "tickcolor": _FAINT, "zeroline": False}
# plotly's own template costs 6.5 KB in every figure; this one a tenth.
_TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', sans-serif", "color": _INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hovermode": "x unified",
        "xaxis": {**_AXIS, "showgrid": False, "automargin": True},
        "yaxis": {**_AXIS, "automargin": True},
    }
)


def lines(
    points: Iterable[Point | tuple[str, float, float]],
    *,
    title: str,
    x: str,
    y: str,
    hlines: Sequence[tuple[str, float]] = (),
    vlines: Sequence[tuple[str, float]] = (),
    log_x: bool = False,
    log_y: bool = False,
    dots: bool = False,
) -> go.Figure:
    """One chart of `points` (or rows of series, x, y), joined in the order in which they are given.

    `hlines` and `vlines` are labelled lines for orientation; axis labels carry their units.

    >>> figure = lines([("p99", 1, 30.0), ("p99", 2, 41.0)], title="Latency", x="rate (1/s)", y="latency (ms)")
    >>> figure.layout.meta["alt"]
    'Latency: latency (ms) over rate (1/s). p99 is 41 ms at 2 1/s, between 30 and 41.'
    """
    levels = tuple(Level(label, value) for label, value in hlines)
    chart = Chart(title, x=x, y=y, levels=levels, log_x=log_x, log_y=log_y, dots=dots)
    figure = charts((chart,), _curves(points))
    for label, value in vlines:
        figure.add_vline(value, line=_rule())
        corner = {"xanchor": "right", "yanchor": "top", "xshift": -5}
        figure.add_annotation(text=label, x=_at(value, log_x), y=1, yref="y domain", showarrow=False, **corner)
    return figure


def charts(specs: Sequence[Chart], curves: Mapping[str, Curve], settings: Any = None, *, title: str = "") -> go.Figure:
    """One figure of all charts, two in a row where their legends fit; the figure in words is in `layout.meta`."""
    wide = max(_legend_width(chart, curves) for chart in specs)
    across = min(2 if wide <= _HALF else 1, len(specs))
    down = -(-len(specs) // across)
    lines = max(1, math.ceil(wide / _PAGE))
    between = _BETWEEN + _LINE * (lines - 1)
    inside = down * _PLOT + (down - 1) * between
    figure = make_subplots(rows=down, cols=across, horizontal_spacing=0.11, vertical_spacing=between / inside)
    said = [
        _draw(figure, chart, curves, settings, (index // across + 1, index % across + 1))
        for index, chart in enumerate(specs)
    ]
    top = (86 if title else 52) + _LINE * lines
    figure.update_layout(
        template=_TEMPLATE,
        height=top + inside + 52,
        margin={"l": 60, "r": 24, "t": top, "b": 52},
        title={"text": title, "x": 0, "xref": "paper", "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 14}},
        meta={"alt": " ".join(said)},
    )
    return figure


def show(figure: go.Figure, alt: str = "") -> None:
    """Display `figure` and its data table; `alt` is the figure in words (made by `lines` and `charts` themselves)."""
    content = json.loads(cast(str, figure.to_json()))
    words = alt or (content["layout"].get("meta") or {}).get("alt", "A figure without a description")
    put(figure_bundle(content, words), raw=True)
    put(data_table(content), raw=True)


def _draw(figure: go.Figure, chart: Chart, curves: Mapping[str, Curve], settings: Any, cell: tuple[int, int]) -> str:
    """Draw `chart` into the cell (row, column) of the figure; returns it in words."""
    row, column = cell
    mine = {name: curve for name, curve in curves.items() if chart.takes(name)}
    levels = [(level.label, level.at(settings)) for level in chart.levels]
    plot = next(figure.select_xaxes(row=row, col=column)).plotly_name.removeprefix("xaxis")
    for index, (name, curve) in enumerate(mine.items()):
        draw = _bar_trace if chart.bars else _dot_trace if chart.dots else _trace
        figure.add_trace(draw(name, curve, index, f"legend{plot}"), row=row, col=column)
    for label, value in levels:
        figure.add_hline(value, line=_rule(), row=row, col=column)
        corner = {"xanchor": "right", "yanchor": "bottom", "showarrow": False}
        place = {"x": 1, "xref": f"x{plot} domain", "y": _at(value, chart.log_y), "yref": f"y{plot}"}
        figure.add_annotation(text=label, **place, **corner)
    figure.update_xaxes(
        title={"text": chart.x, "standoff": 6}, type="log" if chart.log_x else "linear", row=row, col=column
    )
    kind: dict[str, Any] = {"type": "log"} if chart.log_y else {"rangemode": "tozero"}
    if chart.bars:
        rows = [0.0, *(float(level) for curve in mine.values() for level in curve.y)]
        kind = {"range": [max(rows) + 0.6, min(rows) - 0.6], "dtick": 1, "showgrid": False}
    if not unit(chart.x) and _span(mine) <= _COUNTABLE:
        figure.update_xaxes(dtick=1, row=row, col=column)
    figure.update_yaxes(title={"text": chart.y, "standoff": 8}, row=row, col=column, **kind)
    _head(figure, chart.title, plot, max(1, math.ceil(_legend_width(chart, curves) / _PAGE)))
    return describe(chart, mine, levels)


def _head(figure: go.Figure, title: str, plot: str, lines: int) -> None:
    """Put a title and a legend of its own, of so many lines, above one of the figure's plots."""
    left, top = figure.layout[f"xaxis{plot}"].domain[0], figure.layout[f"yaxis{plot}"].domain[1]
    corner = {"x": left, "y": top, "xanchor": "left", "yanchor": "bottom"}
    figure.add_annotation(
        text=f"<b>{title}</b>",
        xref="paper",
        yref="paper",
        yshift=12 + _LINE * lines,
        showarrow=False,
        font_size=15,
        **corner,
    )
    figure.update_layout({f"legend{plot}": {"orientation": "h", "bgcolor": "rgba(0,0,0,0)", **corner}})


def _trace(name: str, curve: Curve, index: int, legend: str, **changes: Any) -> go.Scatter:
    style = pen(index)
    colour = _INK if style.colour == INK else style.colour
    dash = ",".join(f"{length}px" for length in style.dash) or "solid"
    look = {
        "x": _short(curve.x),
        "y": _short(curve.y),
        "mode": "lines+markers" if len(curve.x) <= _MARKED else "lines",
        "line": {"color": colour, "dash": dash, "width": 2.5},
        "marker": {"color": colour, "size": 5 if len(curve.x) > 1 else _MARK, "symbol": index % 7},
    }
    return go.Scatter(name=name, legend=legend, showlegend=True, **{**look, **changes})


def _dot_trace(name: str, curve: Curve, index: int, legend: str) -> go.Scatter:
    return _trace(name, curve, index, legend, mode="markers", marker_size=8)


def _bar_trace(name: str, curve: Curve, index: int, legend: str) -> go.Scatter:
    """Each bar is drawn a little short, so that neighbours can be told apart."""
    begins, ends = curve.x[::2], curve.x[1::2]
    x = [value for begin, end in zip(begins, ends, strict=True) for value in (begin, end - 0.06 * (end - begin), None)]
    y = [value for level in curve.y[::2] for value in (level, level, None)]
    return _trace(name, curve, index, legend, x=x, y=y, mode="lines", line_dash="solid", line_width=16)


def _legend_width(chart: Chart, curves: Mapping[str, Curve]) -> float:
    """Pixels that the names of a chart's curves take beside one another."""
    return sum(6.5 * len(name) + 72 for name in curves if chart.takes(name))


def _span(curves: Mapping[str, Curve]) -> float:
    """How far the curves reach in x."""
    values = [float(end) for curve in curves.values() if len(curve.x) for end in (curve.x.min(), curve.x.max())]
    return max(values, default=math.inf) - min(values, default=0.0)


def _rule() -> dict[str, Any]:
    return {"color": _INK, "dash": "8px,5px", "width": 1.2}


def _at(value: float, logarithmic: bool) -> float:
    """Where a text stands: on a logarithmic axis plotly places lines by value, but texts by exponent."""
    return math.log10(value) if logarithmic else value


def _short(values: Any) -> list[float]:
    """Six significant digits are more than any measurement here has, and half the bytes."""
    return [float(f"{value:.6g}") for value in values]


def _curves(points: Iterable[Point | tuple[str, float, float]]) -> dict[str, Curve]:
    columns: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        name, x, y = (point.series, point.x, point.y) if isinstance(point, Point) else point
        columns.setdefault(name, []).append((x, y))
    tables = {name: np.asarray(pairs, dtype=np.float64) for name, pairs in columns.items()}
    return {name: Curve(table[:, 0], table[:, 1], table[-1, 1]) for name, table in tables.items()}
