"""What a benchmark answers: rows (one number each), checks (a number held to a goal), and what a reader must know."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from labkit.errors import require
from labkit.measure import NumberClass

__all__ = ["BenchCheck", "BenchResult", "BenchRow", "Part"]


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One number: `metric` of `system` in `case`, with the range `low`..`high` over the rounds (`nan`: none).

    A `value` of `nan` was not measured, and the metric's name then says why; an infinite latency means that more
    requests than the percentile leaves out got no answer. JSON has no such numbers: both are written as null.
    """

    case: str
    system: str
    metric: str
    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    number_class: NumberClass = "measured"

    def __post_init__(self) -> None:
        require(
            self.number_class in get_args(NumberClass),
            f"number_class is {self.number_class!r}",
            f"It must be one of {', '.join(get_args(NumberClass))}.",
        )

    @classmethod
    def missing(cls, case: str, system: str, reason: str) -> BenchRow:
        """The row of a system that could not be measured.

        >>> BenchRow.missing("200/s", "a peer", "pip found no network").metric
        'not measured: pip found no network'
        """
        return cls(case, system, f"not measured: {reason}", math.nan)

    def to_json(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return {
            "case": self.case,
            "system": self.system,
            "metric": self.metric,
            "value": _finite(self.value),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "unit": self.unit,
            "class": self.number_class,
        }


@dataclass(frozen=True, slots=True)
class BenchCheck:
    """A number, the goal that was set for it, and whether it holds (None: it was not measured)."""

    name: str
    value: float
    goal: str
    holds: bool | None

    @classmethod
    def within(cls, name: str, value: float, low: float = -math.inf, high: float = math.inf) -> BenchCheck:
        """Hold `value` to a range with one end or two; a `nan` was not measured.

        >>> BenchCheck.within("share of the bare model", 0.97, low=0.95)
        BenchCheck(name='share of the bare model', value=0.97, goal='>= 0.95', holds=True)
        """
        ends = (f">= {low:g}" if high == math.inf else "", f"<= {high:g}" if low == -math.inf else "")
        goal = "".join(ends) or f"{low:g}..{high:g}"
        return cls(name, value, goal, None if math.isnan(value) else low <= value <= high)

    @classmethod
    def above(cls, name: str, value: float, limit: float) -> BenchCheck:
        """Hold `value` to be above `limit`; a draw is not enough.

        >>> BenchCheck.above("labkit / peer", 1.0, 1.0).holds
        False
        """
        return cls(name, value, f"> {limit:g}", None if math.isnan(value) else value > limit)

    def to_json(self) -> dict[str, Any]:
        """The check as JSON has it."""
        return {"name": self.name, "value": _finite(self.value), "goal": self.goal, "holds": self.holds}


@dataclass(frozen=True, slots=True)
class Part:
    """What one case of a benchmark adds: rows, checks, and notes for the foot of the table."""

    rows: tuple[BenchRow, ...] = ()
    checks: tuple[BenchCheck, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Iterable[Part]) -> Part:
        """One part of several, in order."""
        parts = tuple(parts)
        return cls(
            tuple(row for part in parts for row in part.rows),
            tuple(check for part in parts for check in part.checks),
            tuple(note for part in parts for note in part.notes),
        )


@dataclass(frozen=True, slots=True)
class BenchResult:
    """A whole benchmark. `machine` holds names and values: processor, cores, versions, revision."""

    name: str
    machine: tuple[tuple[str, str], ...]
    rows: tuple[BenchRow, ...]
    checks: tuple[BenchCheck, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, machine: tuple[tuple[str, str], ...], parts: Iterable[Part]) -> BenchResult:
        """The result that consists of `parts`."""
        whole = Part.joined(parts)
        return cls(name, machine, whole.rows, whole.checks, whole.notes)

    def to_json(self) -> dict[str, Any]:
        """Plain values: `machine`, `rows` and `checks`."""
        return {
            "machine": dict(self.machine),
            "rows": [row.to_json() for row in self.rows],
            "checks": [check.to_json() for check in self.checks],
        }

    def write_json(self, path: Path | str) -> None:
        """Write `to_json` to a file."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        Path(path).write_text(f"{text}\n", encoding="utf-8")

    def print(self) -> None:
        """Print the tables, the checks as they came out, and the notes."""
        from labkit.bench.table import show

        show(self)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
