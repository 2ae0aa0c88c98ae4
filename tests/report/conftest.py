"""Small notebooks for the tests, made on the spot."""

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

RECORD = "from labkit.report import record_result\nrecord_result(verdict='It holds.', best=16)"


def code(source: str, *tags: str, outputs: list[NotebookNode] | None = None) -> NotebookNode:
    metadata = {"tags": list(tags)} if tags else {}
    return nbformat.v4.new_code_cell(source, metadata=metadata, outputs=outputs or [])


@pytest.fixture
def make_notebook(tmp_path: Path) -> Callable[..., Path]:
    """Write a notebook of the given cells: text is code, text that begins with '#% ' is Markdown."""

    def make(*cells: str | NotebookNode, name: str = "10_lab", kernel: str = "python3") -> Path:
        made = [cell if isinstance(cell, NotebookNode) else _cell(cell) for cell in cells]
        notebook = nbformat.v4.new_notebook(cells=made)
        notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
        path = tmp_path / f"{name}.ipynb"
        nbformat.write(notebook, path)
        return path

    return make


def _cell(text: str) -> NotebookNode:
    if text.startswith("#% "):
        return nbformat.v4.new_markdown_cell(text[3:])
    return code(text, *(["parameters"] if text.startswith("# parameters") else []))


@pytest.fixture
def record_cell() -> str:
    """The last cell of a well-behaved notebook."""
    return RECORD


@pytest.fixture
def new_code() -> Callable[..., NotebookNode]:
    """Make a code cell with tags and outputs."""
    return code


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for reports, with no LABKIT variable leaking in from outside."""
    for name in ("LABKIT_MODE", "LABKIT_RESULT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "reports"
