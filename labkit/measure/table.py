"""Stored results as a table in a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from labkit.measure.result import ResultRow

__all__ = ["print_rows"]


def print_rows(rows: Sequence[ResultRow], path: Path, console: Console | None = None) -> None:
    """Print `rows` of the store at `path`, one line each, with their class and when they were made."""
    console = console or Console()
    if not rows:
        console.print(f"No results in {path} yet. Run: labkit report 90_report_batching", highlight=False)
        return
    table = Table("when (UTC)", "name", "system", "metric", "value", "class", "device", "revision", caption=str(path))
    for row in rows:
        revision = row.provenance.git_revision[:8] if row.provenance else ""
        cells = (row.at_utc[:19], row.name, row.system, row.metric, _value(row), row.number_class, row.device, revision)
        table.add_row(*cells)
    console.print(table, highlight=False)


def _value(row: ResultRow) -> str:
    """The value with its unit, and its interval where it has one.

    >>> _value(ResultRow("lab", "p99", 52.04, "ms", "measured", low=50.0, high=55.0))
    '52.04 ms (50..55)'
    """
    interval = "" if math.isnan(row.low) else f" ({row.low:.4g}..{row.high:.4g})"
    return f"{row.value:.4g} {row.unit}{interval}"
