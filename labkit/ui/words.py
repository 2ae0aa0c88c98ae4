"""Charts and numbers in words, for those who hear a page and for those who read it in a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from labkit.ui.chart import Chart
from labkit.ui.series import Curve

__all__ = ["describe", "number", "unit"]


def number(value: float) -> str:
    """A number for people: three significant digits, and whole from a hundred up.

    >>> [number(value) for value in (0.0123, 41.26, 1234.5, 0.0, float("nan"))]
    ['0.0123', '41.3', '1,234', '0', '–']
    """
    if not isfinite(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def unit(label: str) -> str:
    """The unit that an axis label carries in brackets.

    >>> unit("latency (ms)"), unit("rows")
    ('ms', '')
    """
    return label[label.rfind("(") + 1 : -1] if label.endswith(")") else ""


def describe(chart: Chart, curves: Mapping[str, Curve], levels: Iterable[tuple[str, float]] = ()) -> str:
    """One sentence per series, as the text that stands for the picture.

    >>> import numpy as np
    >>> curve = Curve(np.array([1.0, 2.0]), np.array([30.0, 41.26]), now=41.26)
    >>> describe(Chart("Latency", x="time (s)", y="latency (ms)"), {"p99": curve}, [("SLO", 100.0)])
    'Latency: latency (ms) over time (s). p99 is 41.3 ms at 2 s, between 30 and 41.3. SLO at 100 ms.'
    """
    y_unit, x_unit = unit(chart.y), unit(chart.x)
    shown = {name: curve for name, curve in curves.items() if len(curve.x)}
    if chart.bars:
        said = [_bars(name, curve, x_unit) for name, curve in shown.items()]
    else:
        said = [_curve(name, curve, y_unit, x_unit) for name, curve in shown.items()]
    lines = [_join(f"{label} at {number(value)}", y_unit) + "." for label, value in levels]
    return " ".join([f"{chart.title}: {chart.y} over {chart.x}.", *(said or ["No points yet."]), *lines])


def _curve(name: str, curve: Curve, y_unit: str, x_unit: str) -> str:
    now = _join(f"{name} is {number(float(curve.y[-1]))}", y_unit)
    place = _join(f"at {number(float(curve.x[-1]))}", x_unit)
    return f"{now} {place}, between {number(float(curve.y.min()))} and {number(float(curve.y.max()))}."


def _bars(name: str, curve: Curve, x_unit: str) -> str:
    begins, ends = curve.x[::2], curve.x[1::2]
    whole = float(ends.max() - begins.min())
    share = 100 * float((ends - begins).sum()) / whole if whole > 0 else 0.0
    span = _join(f"from {begins.min():.2f} to {ends.max():.2f}", x_unit)
    return f"{name} has {len(begins)} bars {span}, which cover {number(share)} % of that."


def _join(text: str, unit_name: str) -> str:
    return f"{text} {unit_name}" if unit_name else text
