"""How a benchmark looks in a terminal: one table per case, then the checks, then what a reader must know."""

from __future__ import annotations

import math
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from labkit.bench.result import BenchCheck, BenchResult, BenchRow

__all__ = ["show"]

_VERDICTS = {True: "[green]holds[/]", False: "[bold red]falls short[/]", None: "[yellow]not measured[/]"}


def show(result: BenchResult, console: Console | None = None) -> None:
    """Print `result`. Every check is printed as it came out, whichever way."""
    console = console or Console(highlight=False)
    console.print(f"[bold]labkit bench {result.name}[/]", " · ".join(f"{name} {text}" for name, text in result.machine))
    for case, rows in groupby(result.rows, key=lambda row: row.case):
        console.print(_case_table(case, list(rows)))
    if result.checks:
        console.print(_check_table(result.checks))
    for note in result.notes:
        console.print(f"- {note}", markup=False)


def _case_table(case: str, rows: list[BenchRow]) -> Table:
    missing = [f"{row.system}: {row.metric}" for row in rows if math.isnan(row.value)]
    table = Table(title=case, title_justify="left", title_style="bold", caption=escape("\n".join(missing)))
    table.caption_justify = "left"
    table.add_column("system")
    table.add_column("metric")
    for heading in ("value", "low .. high"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit")
    table.add_column("class")
    for system, own in groupby(rows, key=lambda row: row.system):
        for number, row in enumerate(own):
            shown = system if number == 0 else ""
            interval = "" if math.isnan(row.low) else f"{_number(row.low)} .. {_number(row.high)}"
            measured = not math.isnan(row.value)
            # Why a number is missing would not fit into a column: it stands below the table.
            metric, kind = (row.metric, row.number_class) if measured else ("not measured", "")
            table.add_row(shown, metric, _number(row.value), interval, row.unit, kind)
        table.add_section()
    return table


def _check_table(checks: tuple[BenchCheck, ...]) -> Table:
    table = Table(title="Checks", title_justify="left", title_style="bold")
    table.add_column("check")
    table.add_column("value", justify="right")
    table.add_column("goal", justify="right", no_wrap=True)
    table.add_column("")
    for check in checks:
        table.add_row(check.name, _number(check.value), check.goal, _VERDICTS[check.holds])
    return table


def _number(value: float) -> str:
    """Three figures or all whole digits, whichever is more.

    >>> _number(1234.5), _number(12.345), _number(0.01234), _number(math.nan), _number(math.inf)
    ('1234', '12.3', '0.0123', '-', '∞')
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
