"""Run a notebook as a report: strict parameters, own time limits, and a judgement that trusts no saved metadata."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from time import perf_counter
from typing import Any, TextIO

import nbformat
import papermill  # type: ignore[import-untyped]
from nbformat import NotebookNode

from labkit import __version__
from labkit.errors import ReportError, Unavailable
from labkit.report.export import export_html
from labkit.report.failure import add_banner, raised, status_of, unfinished
from labkit.report.kernel import ENGINE, KernelRun, Limits
from labkit.report.notebooks import find_notebook
from labkit.report.parameters import Parameter, bind, declared
from labkit.report.progress import Progress
from labkit.report.record import RESULT_VARIABLE, read_result
from labkit.report.row import ReportRow, installed_versions

__all__ = ["ReportResult", "run_report"]

_KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
_PAPERMILL_TAG = "papermill-error-cell-tag"


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The files of one run, its row, and the error that it ended with (None: it ended well)."""

    notebook: Path
    html: Path
    row: ReportRow
    error: ReportError | None = None


def run_report(
    name_or_path: str | Path,
    parameters: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "reports",
    limits: Limits | None = None,
    quiet: bool = False,
    check: bool = True,
) -> ReportResult:
    """Run a notebook with `parameters` and write `<out>/<name>__<utc>__<hash8>.{ipynb,html,json}`.

    The run is `ok` only if papermill returned, every code cell ran, and the notebook recorded its result (see
    `record_result`). Otherwise the three files are written all the same, with a red banner on top, and the error is
    raised: `CellFailed`, `CellTimeout`, `KernelDied` or `ReportIncomplete`; with `check=False` it is only returned.
    Raises `UnknownName` and `SettingError` for parameters that the notebook does not declare, before anything runs.
    Unless `quiet`, one line per cell goes to standard error.
    """
    path = find_notebook(name_or_path)
    notebook = _read(path)
    known = declared(notebook)
    bound = bind(parameters or {}, known)
    files = _Files.reserve(Path(out).resolve(), path.stem, bound)
    task = _Task(path, notebook, {**_defaults(known), **bound}, bound, files)
    result = task.run(limits or Limits(), None if quiet else sys.stderr)
    if check and result.error is not None:
        raise result.error
    return result


@dataclass(frozen=True, slots=True)
class _Files:
    """The three files of one run, reserved so that no other run can take the same names."""

    notebook: Path
    html: Path
    row: Path

    @classmethod
    def reserve(cls, folder: Path, name: str, parameters: Mapping[str, Any]) -> _Files:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return cls._reserve(folder, f"{name}__{datetime.now(UTC):%Y%m%dT%H%M%SZ}__{_hash8(name, parameters)}")
        except OSError as refused:
            raise Unavailable(
                f"The reports folder {folder} cannot be written: {refused}", "Give another --out."
            ) from refused

    @classmethod
    def _reserve(cls, folder: Path, stem: str) -> _Files:
        for number in count(1):
            base = folder / (stem if number == 1 else f"{stem}-{number}")
            with suppress(FileExistsError):
                base.with_name(f"{base.name}.ipynb").touch(exist_ok=False)
                break
        return cls(*(base.with_name(f"{base.name}.{ending}") for ending in ("ipynb", "html", "json")))


def _hash8(name: str, parameters: Mapping[str, Any]) -> str:
    key = json.dumps([name, __version__, dict(parameters)], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class _Task:
    """One run of one notebook."""

    path: Path
    notebook: NotebookNode
    effective: dict[str, Any]  # the defaults, overlaid with what was given
    given: dict[str, Any]
    files: _Files

    def run(self, limits: Limits, stream: TextIO | None) -> ReportResult:
        started = datetime.now(UTC)
        with _kernel_run(self.path, limits, Progress(_code_cells(self.notebook, self.given), stream)) as (
            run,
            result_file,
        ):
            error = self._execute(run)
            recorded = read_result(result_file)
            if error is None:
                error = unfinished(run.progress.cells, run.progress.ended, recorded is not None)
            wall_s = perf_counter() - run.started_s
        row = ReportRow(
            report=self.path.stem,
            status=status_of(error),
            started_utc=f"{started:%Y-%m-%dT%H:%M:%SZ}",
            wall_s=round(wall_s, 3),
            parameters=self.effective,
            result=recorded or {},
            versions=installed_versions(),
            problem=str(error or ""),
        )
        return self._write(row, error)

    def _execute(self, run: KernelRun) -> ReportError | None:
        try:
            papermill.execute_notebook(
                self.notebook,
                str(self.files.notebook).replace("{", "{{").replace("}", "}}"),  # papermill formats the path
                self.given,
                engine_name=ENGINE,
                kernel_name="python3",
                progress_bar=False,
                run=run,
            )
        except Exception as error:
            run.progress.abandon()
            return raised(error, run)
        return None

    def _write(self, row: ReportRow, error: ReportError | None) -> ReportResult:
        notebook = _clean(_load(self.files.notebook), row)
        if error is not None:
            add_banner(notebook, error)
        nbformat.write(notebook, self.files.notebook)  # type: ignore[no-untyped-call]
        row.write_json(self.files.row)
        export_html(self.files.notebook, self.files.html, row=row)
        return ReportResult(self.files.notebook, self.files.html, row, error)


@contextmanager
def _kernel_run(path: Path, limits: Limits, progress: Progress) -> Iterator[tuple[KernelRun, Path]]:
    """A run in the notebook's own folder, with a place for its result and for its last words."""
    with TemporaryDirectory(prefix="labkit-report-") as folder, TemporaryFile() as log:
        result = Path(folder) / "result.json"
        variables = {"LABKIT_MODE": "headless", RESULT_VARIABLE: str(result)}
        yield KernelRun(path.parent, variables, limits, progress, log, perf_counter()), result


def _read(path: Path) -> NotebookNode:
    """The notebook, with its kernel named as this interpreter, whatever the author's was called."""
    notebook = _load(path)
    notebook.metadata["kernelspec"] = dict(_KERNELSPEC)
    notebook.metadata.setdefault("language_info", {"name": "python"})
    return notebook


def _load(path: Path) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def _code_cells(notebook: NotebookNode, given: Mapping[str, Any]) -> int:
    """How many cells will run; papermill adds one where parameters are given."""
    run = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.source.strip() and "skip-execution" not in cell.metadata.get("tags", [])
    ]
    stale = any("injected-parameters" in cell.metadata.get("tags", []) for cell in run)
    return len(run) + bool(given) - (stale and bool(given))


def _defaults(known: Mapping[str, Parameter]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, parameter in known.items():
        with suppress(ValueError, SyntaxError):
            values[name] = ast.literal_eval(parameter.default)
    return values


def _clean(notebook: NotebookNode, row: ReportRow) -> NotebookNode:
    """Take out what papermill says about the run: after a killed kernel it calls every cell completed."""
    notebook.cells = [cell for cell in notebook.cells if _PAPERMILL_TAG not in cell.metadata.get("tags", [])]
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        if not cell.metadata.get("tags"):
            cell.metadata.pop("tags", None)
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["labkit"] = {"report": row.report, "status": row.status, "started_utc": row.started_utc}
    return notebook
