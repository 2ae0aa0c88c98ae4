"""The widgets of one panel: controls, buttons, a status line, numbers and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

import ipywidgets as widgets  # type: ignore[import-untyped]
from ipywidgets.widgets.widget_description import DescriptionStyle  # type: ignore[import-untyped]

from labkit.ui.chart import Chart
from labkit.ui.controls import Action, Control
from labkit.ui.job import Failure
from labkit.ui.live_chart import LiveChart
from labkit.ui.words import number, unit

__all__ = ["View", "dispose"]


class View:
    """What a person sees of a panel; it draws what it is told and decides nothing.

    `press(name)` is called when a button is clicked, `turn()` when a control has changed.
    """

    def __init__(
        self,
        title: str,
        controls: Iterable[Control],
        charts: tuple[Chart, ...],
        settings: Any,
        press: Callable[[str], None],
        turn: Callable[[], None],
    ) -> None:
        self._charts = charts
        # One Layout and one style of each kind for all: a Layout alone is more than a kilobyte on the wire.
        self._layout = layout = widgets.Layout()
        look = {"layout": layout, "style": DescriptionStyle(description_width="initial")}
        self.run = widgets.Button(description="Run", button_style="primary", layout=layout)
        pushed = {"layout": layout, "style": self.run.style}
        self.stop = widgets.Button(description="Stop", disabled=True, **pushed)
        made = [(each, pushed if isinstance(each, Action) else look) for each in controls]
        self.controls = {each.name: each.widget(getattr(settings, each.name), **how) for each, how in made}
        self._actions = [self.controls[each.name] for each, _ in made if isinstance(each, Action)]
        self.status = widgets.HTML(layout=layout)
        self.numbers = widgets.HTML(layout=layout, style=self.status.style)
        self.log = widgets.HTML(layout=layout, style=self.status.style)
        self.chart = LiveChart(charts, settings, layout=layout)
        self.run.on_click(lambda _: press("run"))
        self.stop.on_click(lambda _: press("stop"))
        for control in self.controls.values():
            control.observe(lambda _: turn(), names="value")
        self.root = self._arrange(title)

    def _arrange(self, title: str) -> widgets.Box:
        heading = f'<div class="labkit-heading">{escape(title)}</div>'
        rows: list[widgets.Widget] = [
            widgets.HTML(heading, layout=self._layout, style=self.status.style),
            self._box("labkit-controls", [each for each in self.controls.values() if each not in self._actions]),
            self._box("labkit-actions", [self.run, self.stop, *self._actions, self.status]),
            self.log,
            self.numbers,
            self.chart,
        ]
        return self._box("labkit-panel", rows)

    def _box(self, name: str, children: Iterable[widgets.Widget]) -> widgets.Box:
        box = widgets.Box(list(children), layout=self._layout)
        box.add_class(name)
        return box

    def values(self) -> dict[str, Any]:
        """What the controls show, by the name of the setting."""
        return {name: control.value for name, control in self.controls.items()}

    def say(self, text: str) -> None:
        """Show `text` in the status line."""
        self.status.value = f'<div role="status" class="labkit-status">{escape(text)}</div>'

    def recall(self, notes: Iterable[str]) -> None:
        """Show what the lab has said, line by line."""
        lines = "".join(f"<li>{escape(note)}</li>" for note in notes)
        self.log.value = f'<ul class="labkit-log">{lines}</ul>' if lines else ""

    def alert(self, failure: Failure) -> None:
        """Show what went wrong, with the traceback folded away."""
        self.status.value = (
            f'<div role="alert" class="labkit-alert"><b>{escape(failure.message)}</b></div>'
            f"<details><summary>Where it happened</summary><pre>{escape(failure.trace)}</pre></details>"
        )

    def tell(self, newest: Mapping[str, float]) -> None:
        """Show the newest values as one line of text."""
        self.numbers.value = (
            '<div class="labkit-numbers">'
            + "".join(
                f"<span>{escape(name)} <b>{number(value)}</b> {escape(self._unit(name))}</span>"
                for name, value in newest.items()
            )
            + "</div>"
        )

    def enable(self, *, run: bool, stop: bool) -> None:
        """Say which of the buttons can be pressed; actions are for a lab that runs."""
        self.run.disabled = not run
        for button in (self.stop, *self._actions):
            button.disabled = not stop

    def close(self) -> None:
        """Take all widgets away, in the browser too."""
        dispose(self.root)

    def _unit(self, series: str) -> str:
        return next((unit(chart.y) for chart in self._charts if chart.takes(series)), "")


def dispose(widget: widgets.Widget) -> None:
    """Close `widget`, all inside it, and their Layout and Style models, which `close()` alone leaves alive.

    (jupyter-widgets/ipywidgets#2308, #1345)
    """
    for child in getattr(widget, "children", ()):
        dispose(child)
    for part in (getattr(widget, "style", None), getattr(widget, "layout", None), widget):
        if part is not None:
            part.close()
