"""From what papermill and nbclient raise to our own errors, and the banner that a failed report carries."""

from __future__ import annotations

from html import escape

import nbformat
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError  # type: ignore[import-untyped]

from labkit.errors import CellFailed, CellTimeout, KernelDied, ReportError, ReportIncomplete
from labkit.report.kernel import KernelRun
from labkit.report.row import Status

__all__ = ["FAILURE_TAG", "add_banner", "raised", "status_of", "unfinished"]

FAILURE_TAG = "labkit-failure"

_STATUS: dict[type[ReportError], Status] = {
    CellFailed: "failed",
    CellTimeout: "timeout",
    KernelDied: "died",
    ReportIncomplete: "incomplete",
}


def status_of(error: ReportError | None) -> Status:
    """The word for a report that ended with `error` (None: well)."""
    return "ok" if error is None else _STATUS[type(error)]


def raised(error: Exception, run: KernelRun) -> ReportError:
    """Our error for what papermill raised; anything that is not about the run itself is raised again."""
    where = f"in cell {run.progress.started} ({run.progress.running!r})"
    if isinstance(error, PapermillExecutionError):
        return CellFailed(f"{error.ename}: {error.evalue}, {where}", "Mend that cell, then run the report again.")
    if isinstance(error, CellTimeoutError):
        return CellTimeout(f"{_limit(run)} passed {where}", "Give it more time, or a smaller task.")
    if isinstance(error, DeadKernelError):
        remedy = "Often the memory ran out: give it a smaller task, or close other programs."
        return KernelDied(f"The kernel died {where}{_last_words(run)}", remedy)
    if isinstance(error, RuntimeError) and "ernel" in str(error):
        return KernelDied(f"The kernel did not start: {error}{_last_words(run)}", "Run `labkit doctor`.")
    raise error


def unfinished(cells: int, ended: int, recorded: bool) -> ReportError | None:
    """The error of a run that returned without running all `cells` or without recording a result, if it did so."""
    if ended < cells:
        problem = f"The notebook stopped after {ended} of {cells} code cells"
        return ReportIncomplete(problem, "Look for sys.exit or a failing magic in the last cell that ran.")
    if not recorded:
        remedy = "Call labkit.report.record_result(...) in its last cell."
        return ReportIncomplete("The notebook ended without recording its result", remedy)
    return None


def add_banner(notebook: NotebookNode, error: ReportError) -> None:
    """Put a red banner on top of `notebook`, in place of the marks that papermill left."""
    link = ' <a href="#failure">Show the cell</a>' if isinstance(error, CellFailed) else ""
    text = (
        f'<div class="alert alert-danger {FAILURE_TAG}" role="alert">'
        f"<strong>This report is not complete.</strong> {escape(str(error))}{link}</div>"
    )
    cell = nbformat.v4.new_markdown_cell(text, metadata={"tags": [FAILURE_TAG]})  # type: ignore[no-untyped-call]
    notebook.cells.insert(0, cell)


def _limit(run: KernelRun) -> str:
    if run.left_s <= 0:
        return f"The limit of {run.limits.total_s:g} s for the whole report"
    return f"The limit of {run.limits.cell_s:g} s for a cell"


def _last_words(run: KernelRun) -> str:
    """The first line that the dying kernel wrote about a fatal error, if it did."""
    run.log.seek(0)
    for line in run.log.read().decode("utf-8", "replace").splitlines():
        if line.startswith(("Fatal Python error", "Traceback", "terminate called", "CUDA error")):
            return f" ({line.strip()})"
    return ""
