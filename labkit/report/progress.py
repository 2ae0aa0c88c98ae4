"""One line per cell while a report runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TextIO

__all__ = ["Progress", "caption"]

_WIDTH = 64


def caption(source: str) -> str:
    r"""What a cell is about: its first line, without the comment sign.

    >>> caption("# Measure the curve on this device\ncurve = measure()")
    'Measure the curve on this device'
    """
    first = next((line.strip() for line in source.splitlines() if line.strip()), "")
    text = first.lstrip("#").strip()
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


@dataclass(slots=True)
class Progress:
    """Counts the cells that were started and ended, and writes a line for each to `stream` (None: nowhere).

    The line begins when the cell begins, so that a reader sees what a long cell is doing; its seconds follow at the
    end. `ended` is the runner's own count of the cells that came to an end, kept apart from anything that the notebook
    says about itself.
    """

    cells: int
    stream: TextIO | None = None
    started: int = 0
    ended: int = 0
    running: str = ""
    _since_s: float = field(default=0.0, repr=False)

    def begin(self, source: str) -> None:
        """Note that a cell starts."""
        self.started += 1
        self.running = caption(source)
        self._since_s = perf_counter()
        self._write(f"  [{self.started:>2}/{self.cells}] {self.running:<{_WIDTH}} ")

    def end(self) -> None:
        """Note that the running cell has ended, well or badly."""
        self.ended += 1
        self._write(f"{perf_counter() - self._since_s:6.1f} s\n")

    def abandon(self) -> None:
        """Close the line of a cell that never ended."""
        if self.ended < self.started:
            self._write("  lost\n")

    def _write(self, text: str) -> None:
        if self.stream is not None:
            self.stream.write(text)
            self.stream.flush()
