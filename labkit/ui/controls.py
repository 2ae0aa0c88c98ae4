"""The controls of a panel, declared: each names a field of the lab's settings and becomes one accessible widget.

`widget(value, **look)` makes it; `look` may hold a layout and a style that controls share. An `Action` is the one that
holds no value of its own: it counts how often it was pressed, so that a press is a change of settings like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets  # type: ignore[import-untyped]
import traitlets

from labkit.errors import require

__all__ = ["Action", "Choice", "Control", "Number", "Whole"]

# The description is the control's accessible name; at the default width anything over 90 pixels is cut.
_STYLE = {"description_width": "initial"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `options`: texts, or (text, value) pairs."""

    name: str
    label: str
    options: tuple[Any, ...]

    def widget(self, value: Any, **look: Any) -> widgets.Dropdown:
        """A dropdown that shows `value`; raises `SettingError` if it is no option."""
        pairs = [option if isinstance(option, tuple) else (str(option), option) for option in self.options]
        values = [option for _, option in pairs]
        require(value in values, f"{self.name} is {value!r}; it must be one of {values}", "Add it to the options.")
        return widgets.Dropdown(description=self.label, options=pairs, value=value, **{"style": _STYLE, **look})


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`."""

    name: str
    label: str
    low: int
    high: int
    unit: str = ""
    step: int = 1

    def widget(self, value: int, **look: Any) -> widgets.BoundedIntText:
        """A field that shows `value`; raises `SettingError` if it is out of range."""
        return _field(widgets.BoundedIntText, self, value, look)


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `low` to `high`; `step` is what the arrow keys add."""

    name: str
    label: str
    low: float
    high: float
    unit: str = ""
    step: float = 1.0

    def widget(self, value: float, **look: Any) -> widgets.BoundedFloatText:
        """A field that shows `value`; raises `SettingError` if it is out of range."""
        return _field(widgets.BoundedFloatText, self, value, look)


@dataclass(frozen=True, slots=True)
class Action:
    """A button beside Run and Stop; each press adds 1 to the setting `name`, which a lab that follows sees at once."""

    name: str
    label: str

    def widget(self, value: int, **look: Any) -> widgets.Button:
        """A button that has been pressed `value` times; it can be pressed while a lab runs."""
        button = _Counter(description=self.label, tooltip=self.label, disabled=True, **look)
        button.value = value
        button.on_click(_count)
        return button


Control = Choice | Whole | Number | Action


class _Counter(widgets.Button):  # type: ignore[misc]
    """A button with a value, as other controls have one; the browser knows nothing of it."""

    value = traitlets.Int(0)


def _count(button: _Counter) -> None:
    button.value += 1


def _field(kind: type[Any], control: Whole | Number, value: float, look: dict[str, Any]) -> Any:
    low, high = control.low, control.high
    require(low <= value <= high, f"{control.name} is {value}; it must be from {low} to {high}", "Widen the limits.")
    label = f"{control.label} ({control.unit})" if control.unit else control.label
    range_ = {"min": low, "max": high, "step": control.step}
    return kind(description=label, value=value, **range_, **{"style": _STYLE, **look})
