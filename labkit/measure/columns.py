"""Rows turned on their side: one numpy array per field, so that metrics are vector arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.records import RequestRecord, StepRecord

__all__ = ["RequestColumns", "StepColumns", "covered_s", "mean", "share"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class RequestColumns:
    """Requests by field; every array has the shape `[requests]`."""

    outcome: npt.NDArray[np.str_]
    latency_ms: Floats
    wait_ms: Floats
    finished_s: Floats
    copied_bytes: Floats

    @classmethod
    def of(cls, rows: Sequence[RequestRecord]) -> RequestColumns:
        """Turn rows into columns; a request that was not answered is infinitely late."""
        outcome = np.array([row.outcome for row in rows], dtype="U9")
        latency_ms = _floats([row.latency_s for row in rows]) * 1e3
        return cls(
            outcome=outcome,
            latency_ms=np.where(outcome == "ok", latency_ms, math.inf),
            wait_ms=_floats([row.wait_s for row in rows]) * 1e3,
            finished_s=_floats([row.finished_s for row in rows]),
            copied_bytes=_floats([row.copied_bytes for row in rows]),
        )

    def count(self, outcome: str) -> int:
        """How many ended so."""
        return int((self.outcome == outcome).sum())

    @property
    def executed(self) -> Flags:
        """Which ones a step began to compute."""
        return np.isfinite(self.wait_ms)

    @property
    def unwanted(self) -> Flags:
        """Which ones were computed although nobody waited for the answer any more."""
        return self.executed & np.isin(self.outcome, ("expired", "cancelled"))

    def answered_before(self, end_s: float) -> int:
        """How many were answered before `end_s`."""
        return int(((self.outcome == "ok") & (self.finished_s < end_s)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class StepColumns:
    """Steps by field; every array has the shape `[steps]`."""

    device: npt.NDArray[np.str_]
    ok: Flags
    started_s: Floats
    finished_s: Floats
    rows: Floats
    cap: Floats
    real: Floats
    computed: Floats
    copied_bytes: Floats

    @classmethod
    def of(cls, steps: Sequence[StepRecord]) -> StepColumns:
        """Turn steps into columns; a step that counts no units counts its rows instead."""
        return cls(
            device=np.array([step.device for step in steps], dtype=np.str_),
            ok=np.array([step.outcome == "ok" for step in steps], dtype=np.bool_),
            started_s=_floats([step.started_s for step in steps]),
            finished_s=_floats([step.finished_s for step in steps]),
            rows=_floats([step.rows for step in steps]),
            cap=_floats([step.cap for step in steps]),
            real=_floats([step.real_units if step.computed_units else step.rows for step in steps]),
            computed=_floats([step.computed_units or step.rows + step.padded_rows for step in steps]),
            copied_bytes=_floats([step.copied_bytes for step in steps]),
        )

    @property
    def duration_ms(self) -> Floats:
        """Milliseconds that each step took."""
        return (self.finished_s - self.started_s) * 1e3

    def ok_sum(self, column: Floats) -> float:
        """The sum of one column over the steps that succeeded."""
        return float(column[self.ok].sum())

    def inside_s(self, start_s: float, end_s: float) -> float:
        """Seconds of all steps together, as far as they lie in the window."""
        return float(np.clip(np.minimum(self.finished_s, end_s) - np.maximum(self.started_s, start_s), 0, None).sum())

    def busy_share(self, start_s: float, end_s: float) -> float:
        """The share of the window in which a device has a step running, as a mean over the devices seen."""
        covered = [
            covered_s(self.started_s[mine].clip(start_s, end_s), self.finished_s[mine].clip(start_s, end_s))
            for mine in (self.device == name for name in np.unique(self.device))
        ]
        return share(sum(covered), len(covered) * (end_s - start_s))


def covered_s(started_s: Floats, finished_s: Floats) -> float:
    """The length of the union of intervals: two workers on one device count once.

    >>> covered_s(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
    4.0
    """
    order = np.argsort(started_s, kind="stable")
    starts_s, ends_s = started_s[order], np.maximum.accumulate(finished_s[order])
    before_s = np.concatenate([starts_s[:1], ends_s[:-1]])
    return float(np.clip(ends_s - np.maximum(starts_s, before_s), 0, None).sum())


def mean(values: Floats) -> float:
    """The mean, `nan` of nothing."""
    return float(values.mean()) if values.size else math.nan


def share(part: float, whole: float) -> float:
    """`part / whole`, `nan` of nothing."""
    return part / whole if whole else math.nan


def _floats(values: Sequence[Any]) -> Floats:
    return np.array(values, dtype=np.float64)
