"""What came of an attempt at an exercise, and how it is shown in a terminal and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

from IPython.core.getipython import get_ipython
from IPython.display import display

__all__ = ["Note", "Outcome", "State", "show"]

State = Literal["not attempted", "wrong", "passed"]

_COLOURS = {"not attempted": "#767676", "wrong": "#D55E00", "passed": "#009E73"}
_SIGNS = {"not attempted": "…", "wrong": "✗", "passed": "✓"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of an attempt, in words, with the case that showed it.

    `facts` are (what, value) pairs: input, expected and got of the first wrong case, or the score of a passed one.
    """

    exercise: str
    state: State
    message: str
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the answer is right in every case."""
        return self.state == "passed"

    def __str__(self) -> str:
        lines = [f"{_SIGNS[self.state]} {self.exercise}: {self.state}. {self.message}".rstrip()]
        return "\n".join(lines + [f"    {what + ':':<10} {value}" for what, value in self.facts])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<div style="display:flex"><span style="flex:0 0 6.5em;opacity:.75">{escape(what)}</span>'
            f'<code style="white-space:pre-wrap">{escape(value)}</code></div>'
            for what, value in self.facts
        )
        head = f"{_SIGNS[self.state]} {escape(self.exercise)}: {self.state}."
        return _boxed(f"<strong>{head}</strong> {escape(self.message)}{rows}", _COLOURS[self.state])


@dataclass(frozen=True, slots=True)
class Note:
    """A hint, a solution, or another word to the student; `code` is shown as it is."""

    title: str
    text: str = ""
    code: str = ""

    def __str__(self) -> str:
        return "\n".join(part for part in (f"{self.title} {self.text}".strip(), self.code) if part)

    def _repr_html_(self) -> str:
        code = f'<pre style="margin:.4em 0 0">{escape(self.code)}</pre>' if self.code else ""
        return _boxed(f"<strong>{escape(self.title)}</strong> {escape(self.text)}{code}", "#0072B2")


def show(message: Outcome | Note) -> None:
    """Show it where the student is looking: as HTML in a notebook, as text in a terminal."""
    if get_ipython() is None:  # type: ignore[no-untyped-call, unused-ignore]
        print(message)
    else:
        bundle = {"text/plain": str(message), "text/html": message._repr_html_()}
        display(bundle, raw=True)  # type: ignore[no-untyped-call, unused-ignore]


def _boxed(inner: str, colour: str) -> str:
    """A box that a screen reader announces and that follows the notebook's light or dark theme."""
    style = f"border-left:4px solid {colour};padding:.35em .9em;margin:.3em 0;line-height:1.5"
    return f'<div class="labkit-teach" role="status" style="{style}">{inner}</div>'
