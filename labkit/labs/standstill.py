"""How long a pipeline stood still around a fault, read from its step rows alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from labkit.records import StepRecord

__all__ = ["Standstill", "longest_gap_ms", "standstill"]

_AFTER_S = 0.5


@dataclass(frozen=True, slots=True)
class Standstill:
    """`back_ms`: from the fault to the stage's next microbatch; `gap_ms`: the longest wait for a result around it."""

    back_ms: float
    gap_ms: float


def standstill(steps: Iterable[StepRecord], stage: int, last_stage: int, at_s: float) -> Standstill | None:
    """What the fault at `at_s` cost; None as long as the stage is not back, or its effects may not be over.

    >>> row = lambda stage, begun, ended: StepRecord(0, f"stage{stage}", 0, "cpu", begun, ended, 1, 1)
    >>> rows = [row(0, 0.0, 0.1), row(1, 0.1, 0.2), row(0, 0.3, 0.4), row(1, 0.4, 0.5), row(1, 1.0, 1.1)]
    >>> found = standstill(rows, stage=0, last_stage=1, at_s=0.15)
    >>> round(found.back_ms), round(found.gap_ms)
    (150, 600)
    """
    done = [step for step in steps if step.outcome == "ok"]
    name = f"stage{stage}"
    back_s = min((step.started_s for step in done if step.stage == name and step.started_s >= at_s), default=None)
    if back_s is None or max(step.finished_s for step in done) < back_s + _AFTER_S:
        return None
    around = [step for step in done if step.finished_s <= back_s + 2 * _AFTER_S]
    return Standstill(1000 * (back_s - at_s), longest_gap_ms(around, last_stage, at_s))


def longest_gap_ms(steps: Iterable[StepRecord], last_stage: int, since_s: float = 0.0) -> float:
    """The longest time between two results of the last stage, of those that end after `since_s`; 0 without any."""
    name = f"stage{last_stage}"
    ends = sorted(step.finished_s for step in steps if step.stage == name and step.outcome == "ok")
    return 1000 * max((after - before for before, after in pairwise(ends) if after > since_s), default=0.0)
