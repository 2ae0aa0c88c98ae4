"""What another host's clock says, in this one's time."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["Offset"]

_KEPT = 8


class Offset:
    """How far another clock is ahead, from question and answer; the quickest of the last answers is believed.

    An answer was given at some moment between question and arrival, so it is wrong by at most half of that time. NTP
    chooses among its samples in the same way (Mills, 1991).

    >>> offset = Offset()
    >>> offset.add(asked_s=1.0, theirs_s=101.4, heard_s=2.0)
    >>> offset.add(asked_s=3.0, theirs_s=103.1, heard_s=3.2)
    >>> round(offset.ours_s(104.0), 6)
    4.0
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._ahead_s = 0.0

    def add(self, *, asked_s: float, theirs_s: float, heard_s: float) -> None:
        """Take in an answer: `theirs_s` on the other clock, the others on ours."""
        self._samples.append((heard_s - asked_s, theirs_s - (asked_s + heard_s) / 2))
        self._ahead_s = min(self._samples)[1]

    def ours_s(self, theirs_s: float) -> float:
        """The same moment on our clock; no later than now."""
        return min(theirs_s - self._ahead_s, time.perf_counter())
