"""One row per report run: what was asked, what came out, and with which versions."""

from __future__ import annotations

import json
import platform
import shlex
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

__all__ = ["ReportRow", "Status", "installed_versions"]

Status = Literal["ok", "failed", "died", "timeout", "incomplete"]

_PACKAGES = ("labkit", "torch", "numpy", "numba", "papermill", "nbconvert", "ipykernel", "plotly")


@dataclass(frozen=True, slots=True)
class ReportRow:
    """How one run of a notebook ended.

    `started_utc` is ISO 8601; `result` is what the notebook recorded (`verdict` and its numbers), `problem` what went
    wrong, if anything did.
    """

    report: str
    status: Status
    started_utc: str
    wall_s: float
    parameters: dict[str, Any]
    result: dict[str, Any]
    versions: dict[str, str]
    problem: str = ""

    @property
    def verdict(self) -> str:
        """The one sentence that the notebook came to; empty if it gave none."""
        return str(self.result.get("verdict", ""))

    @property
    def command(self) -> str:
        """The command line that makes this report again.

        >>> ReportRow("90_x", "ok", "", 1.0, {"slo_ms": 80.0, "model": "a b"}, {}, {}).command
        "labkit report 90_x -p slo_ms=80.0 -p 'model=a b'"
        """
        settings = [f"-p {shlex.quote(f'{name}={value}')}" for name, value in self.parameters.items()]
        return " ".join(["labkit report", shlex.quote(self.report), *settings])

    def write_json(self, path: Path) -> None:
        """Write the row beside the report."""
        path.write_text(json.dumps(asdict(self), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def installed_versions() -> dict[str, str]:
    """The versions of Python and of the packages that a report depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
