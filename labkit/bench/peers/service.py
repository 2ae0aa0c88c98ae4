"""The synthetic service: S(b) = 20 ms + 1 ms * b, by sleeping. It stands for a device that is busy so long.

This is the one place where sleeping is right: it is the bench's yardstick, the same for every system, and what a
perfect batcher makes of it can be computed. It blocks its thread, as a real model does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

__all__ = ["BASE_MS", "CAP", "ROW_MS", "WAIT_MS", "Service"]

BASE_MS = 20.0
ROW_MS = 1.0
CAP = 32
# The window of the peers that wait by a timer: the default of `batched`, and a usual choice for the others.
WAIT_MS = 5


class Service:
    """Sleeps for each batch, and remembers how large it was."""

    def __init__(self) -> None:
        self.batch_rows: list[int] = []

    def __call__(self, rows: Sequence[Any]) -> list[Any]:
        """Answer each row with itself."""
        self.batch_rows.append(len(rows))
        time.sleep((BASE_MS + ROW_MS * len(rows)) / 1000)
        return list(rows)
