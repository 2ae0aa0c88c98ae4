"""Every notebook of notebooks/: how it is stored, and that it runs, by papermill and by nbval."""

import ast
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from labkit.report import run_report
from labkit.report.parameters import declared

Nbval = Callable[..., subprocess.CompletedProcess[str]]

FORBIDDEN = {
    "display_id": "an update of a plotly figure by display_id is ignored in JupyterLab",
    "ui_events": "polling loops are dead on ipykernel 7",
    "FigureWidget": "5 MB a figure, and empty after a reload",
    "LABKIT_MODE": "live or headless is decided outside of the notebook",
}


def _read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def test_the_folder_holds_notebooks(notebooks_folder: Path) -> None:
    if not notebooks_folder.is_dir():
        pytest.skip("there is no folder notebooks/ yet")
    assert list(notebooks_folder.glob("*.ipynb"))


def test_a_notebook_is_stored_clean(notebook: Path) -> None:
    """Valid, small, without widget state, and with the one kernel that every installation has."""
    node = _read(notebook)
    nbformat.validate(node)
    assert notebook.stat().st_size < 300_000
    assert "widgets" not in node.metadata
    assert "papermill" not in node.metadata
    assert node.metadata.kernelspec.name == "python3"
    assert node.cells[0].source.startswith("# "), "a notebook begins with its title"


def test_a_notebook_ends_by_recording_its_result(notebook: Path) -> None:
    assert "record_result(" in _code(_read(notebook))[-1].source


def test_every_parameter_is_a_typed_literal_that_papermill_can_read(notebook: Path) -> None:
    node = _read(notebook)
    cells = [cell for cell in _code(node) if "parameters" in cell.metadata.get("tags", [])]
    assert len(cells) <= 1
    statements = [statement for cell in cells for statement in ast.parse(cell.source).body]
    assert all(isinstance(statement, ast.AnnAssign) for statement in statements)
    names = {statement.target.id: ast.literal_eval(statement.value) for statement in statements}
    assert set(declared(node)) == set(names)


@pytest.mark.parametrize("word", FORBIDDEN)
def test_a_notebook_uses_nothing_that_is_known_to_fail(notebook: Path, word: str) -> None:
    found = [cell.source for cell in _code(_read(notebook)) if word in cell.source]
    assert found == [], FORBIDDEN[word]


@pytest.mark.notebooks
@pytest.mark.timeout(300)
def test_a_notebook_runs_as_a_report(
    notebook: Path, least: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABKIT_RESULTS", str(tmp_path / "results.sqlite"))
    result = run_report(notebook, least(notebook), out=tmp_path, quiet=True)
    assert result.row.status == "ok"
    assert result.notebook.stat().st_size < 300_000
    assert "widgets" not in _read(result.notebook).metadata


@pytest.mark.notebooks
@pytest.mark.timeout(300)
def test_a_notebook_runs_by_nbval(
    notebook: Path,
    nbval: Nbval,
    shortened: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LABKIT_RESULTS", str(tmp_path / "results.sqlite"))
    # As a report it ran on the model of its own choice, with larger batches.
    done = nbval(shortened(notebook, model="minilm", cap=2))
    assert done.returncode == 0, done.stdout[-4000:]
