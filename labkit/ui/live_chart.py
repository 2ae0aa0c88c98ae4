"""The live chart: one anywidget that draws one or more small charts side by side.

The mechanism: the kernel sends numbers, the browser keeps the newest and draws them when it can. A frame is a small
JSON value (which series, how many points, levels, the picture in words) and one binary buffer of float64, in a single
message, so five frames a second cost next to nothing and three hundred at once leave no backlog. The state lives in
the kernel's widget, so a page that is opened again shows the chart as it was.

Everything the browser needs (uPlot, our drawing code, the style) travels in the widget itself, gzipped: it works
offline, and in any front end that shows widgets.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from importlib.resources import files
from math import isfinite
from typing import Any

import anywidget
import numpy as np
import traitlets

from labkit.ui.chart import Chart
from labkit.ui.series import Curve
from labkit.ui.theme import PENS
from labkit.ui.words import describe

__all__ = ["LiveChart"]


def _text(name: str) -> str:
    return (files("labkit.ui") / "static" / name).read_text(encoding="utf-8")


def _dense(name: str) -> str:
    """A text of ours without its indents and comments: every panel carries it."""
    lines = (line.strip() for line in _text(name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))


_BUNDLE = gzip.compress(f"{_text('uPlot.iife.min.js')}\n{_dense('chart.js')}".encode(), mtime=0)


class LiveChart(anywidget.AnyWidget):
    """Draws `charts`; `update` gives it new curves, from any one thread at a time.

    `charts` are `Chart`s, `settings` is what their levels are looked up in. The texts of `_esm` and `_css` are str:
    anywidget keeps a widget whose `_esm` is a Path alive for ever (manzt/anywidget#929).
    """

    _esm = _text("loader.js")
    _css = f"{_text('uPlot.min.css')}\n{_dense('chart.css')}"

    bundle = traitlets.Bytes(_BUNDLE).tag(sync=True)
    bundle_name = traitlets.Unicode(sha256(_BUNDLE).hexdigest()[:16]).tag(sync=True)
    pens = traitlets.List([asdict(pen) for pen in PENS]).tag(sync=True)
    charts: Any = traitlets.List().tag(sync=True)
    frame: Any = traitlets.Dict().tag(sync=True)
    data = traitlets.Bytes(b"").tag(sync=True)

    def __init__(self, charts: Sequence[Chart], settings: Any = None, **look: Any) -> None:
        self._specs = tuple(charts)
        self._revision = 0
        frame, data = self._frame({}, settings)
        super().__init__(charts=[_sent(chart) for chart in charts], frame=frame, data=data, **look)

    def update(self, curves: Mapping[str, Curve], settings: Any = None) -> int:
        """Show `curves` (series name -> x and y) and return the bytes of numbers that were sent."""
        self._revision += 1
        frame, data = self._frame(curves, settings)
        with self.hold_sync():
            self.frame, self.data = frame, data
        return len(data)

    def _frame(self, curves: Mapping[str, Curve], settings: Any) -> tuple[dict[str, Any], bytes]:
        parts, columns = [], []
        for chart in self._specs:
            mine = {name: curve for name, curve in curves.items() if chart.takes(name)}
            levels = [(level.label, level.at(settings)) for level in chart.levels]
            columns += [column for curve in mine.values() for column in (curve.x, curve.y)]
            parts.append(
                {
                    "names": list(mine),
                    "counts": [len(curve.x) for curve in mine.values()],
                    "now": [curve.now if isfinite(curve.now) else None for curve in mine.values()],
                    "levels": [list(level) for level in levels],
                    "alt": describe(chart, mine, levels),
                }
            )
        data = np.concatenate(columns).astype("<f8").tobytes() if columns else b""
        return {"revision": self._revision, "parts": parts}, data


def _sent(chart: Chart) -> dict[str, Any]:
    """The part of a chart that never changes, as the browser gets it; what is not said is empty or false."""
    names = ("title", "x", "y", "caption", "log_x", "log_y", "dots", "bars")
    return {name: value for name in names if (value := getattr(chart, name))}
