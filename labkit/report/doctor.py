"""Check a machine before the class begins: each fault is shown with what to do about it.

findings = examine()
render(findings)
sys.exit(0 if all(finding.ok for finding in findings) else 1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from labkit.errors import LabkitError
from labkit.report import machine, packages
from labkit.report.finding import Finding

__all__ = ["Finding", "examine", "render"]

Check = Callable[[], Finding | tuple[Finding, ...]]

_CHECKS: tuple[tuple[str, Check], ...] = (
    ("Python", packages.check_python),
    ("packages", packages.check_needed),
    ("tested set", packages.check_tested),
    ("widgets", packages.check_widgets),
    ("devices", machine.check_devices),
    ("accelerator", machine.check_gpu_build),
    ("browser", machine.check_browser),
    ("folders", machine.check_folders),
    ("disk", machine.check_disk),
    ("ports", machine.check_ports),
)

# Each state has its own word besides its colour.
_MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[bold red]FAIL[/]"}


def examine() -> tuple[Finding, ...]:
    """Run every check; one that breaks becomes a finding itself and does not keep the others from running."""
    return tuple(finding for name, check in _CHECKS for finding in _run(name, check))


def render(findings: tuple[Finding, ...], console: Console | None = None) -> None:
    """Print the findings as a table, the remedy under each that is not well, and one closing line."""
    screen = console or Console(highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(_MARKS[finding.state], finding.name, _plain(finding.detail))
        if finding.state != "ok":
            table.add_row("", "", _plain(f"-> {finding.remedy}"))
    screen.print(Padding(table, (1, 0)))
    screen.print(_closing_line(findings))


def _closing_line(findings: tuple[Finding, ...]) -> str:
    count = Counter(finding.state for finding in findings)
    if count["fail"]:
        return f"{count['fail']} of {len(findings)} checks failed; do what their lines say and run labkit doctor again."
    warnings = f", {count['warn']} with a warning" if count["warn"] else ""
    return f"All {len(findings)} checks passed{warnings}."


def _run(name: str, check: Check) -> tuple[Finding, ...]:
    try:
        found = check()
    except LabkitError as error:
        return (Finding(name, "fail", error.problem, error.remedy or "See the message."),)
    except Exception as error:  # whatever is broken on this machine, the other checks still help
        remedy = "Reinstall: rm -rf .venv, then make report; if it stays, report it with this line."
        return (Finding(name, "fail", f"the check itself failed: {type(error).__name__}: {error}", remedy),)
    return found if isinstance(found, tuple) else (found,)


def _plain(text: str) -> str:
    """Keep rich from reading brackets in a path or an extra as its markup."""
    return text.replace("[", "\\[")
