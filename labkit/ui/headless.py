"""A lab without a person: run inline, a line per stage, one static figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from labkit.labs import Note, Point
from labkit.ui import figures
from labkit.ui.chart import Chart
from labkit.ui.curves import Curves
from labkit.ui.words import number, unit

__all__ = ["run_inline"]


def run_inline(title: str, items: Iterable[Point | Note], charts: tuple[Chart, ...], settings: Any) -> Curves:
    """Take all of `items`, printing each `Note`, then show the charts as one figure; whatever raises is raised."""
    curves = Curves(charts)
    print(f"{title}: running headless" if title else "Running headless", flush=True)
    for item in items:
        curves.add(item)
        if isinstance(item, Note):
            print(item.text, flush=True)
    for chart in charts:
        _print_newest(chart, curves.newest())
    figures.show(figures.charts(charts, curves.snapshot(), settings, title=title))
    return curves


def _print_newest(chart: Chart, newest: dict[str, float]) -> None:
    said = [f"{name} {number(value)} {unit(chart.y)}".rstrip() for name, value in newest.items() if chart.takes(name)]
    if said:
        print(f"{chart.title}: {', '.join(said)}", flush=True)
