"""Turn a notebook into a report: run it with parameters, judge the run, write one HTML file that opens offline.

    from labkit.report import run_report
    result = run_report("90_report_batching", {"slo_ms": 80.0})
    result.html                                   # reports/90_report_batching__20260102T030405Z__1a2b3c4d.html

Notebooks import this folder too, for `record_result`, so papermill and nbconvert are loaded only when they are needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.report.export import export_html
    from labkit.report.record import record_result
    from labkit.report.row import ReportRow
    from labkit.report.run import ReportResult, run_report

__all__ = ["ReportResult", "ReportRow", "export_html", "record_result", "run_report"]

_HOME = {
    "ReportResult": "run",
    "ReportRow": "row",
    "export_html": "export",
    "record_result": "record",
    "run_report": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
