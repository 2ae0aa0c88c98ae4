"""How far a download is: a bar on a terminal; elsewhere a line per stage and nothing more."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["Progress"]

REDRAW_S = 0.1
WIDTH = 30


class Progress:
    """Writes to `stream`, by default the standard error output of the moment.

    >>> progress = Progress("minilm", sys.stdout)
    >>> progress.stage("unpacking")
    minilm: unpacking
    """

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name = name
        self._stream = sys.stderr if stream is None else stream
        self._drawn_s = -1.0
        self._bar_is_open = False

    def stage(self, text: str) -> None:
        """Say what happens now, on a line of its own."""
        self._close_bar()
        self._write(f"{self._name}: {text}\n")

    def at(self, done_bytes: int, total_bytes: int) -> None:
        """Draw the bar, if this is a terminal and the last drawing is not too recent."""
        now_s = time.perf_counter()
        ended = done_bytes >= total_bytes
        if not self._stream.isatty() or (now_s - self._drawn_s < REDRAW_S and not ended):
            return
        self._drawn_s, self._bar_is_open = now_s, True
        filled = WIDTH * done_bytes // max(1, total_bytes)
        bar = "█" * filled + "░" * (WIDTH - filled)
        self._write(f"\r{self._name}: {bar} {done_bytes / 1e6:.0f} of {total_bytes / 1e6:.0f} MB")
        if ended:
            self._close_bar()

    def _close_bar(self) -> None:
        if self._bar_is_open:
            self._write("\n")
            self._bar_is_open = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
