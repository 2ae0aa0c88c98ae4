"""Student copies of the notebooks: one source, with the solutions in it, and copies that are built and never edited.

Two marks say what a student does not get. A cell tagged `solution` is left out. In any other cell, the lines between
`# solution begins` and `# solution ends` become `raise NotImplementedError`. Outputs go as well: what a student sees,
the student has run.
"""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from labkit.errors import SettingError, Unavailable

__all__ = ["build_student", "problems", "student_copy"]

_BEGINS = re.compile(r"^(?P<indent>\s*)#\s*solution begins\s*$")
_ENDS = re.compile(r"^\s*#\s*solution ends\s*$")
_KEPT = ("kernelspec", "language_info", "title")


def build_student(source: Path, target: Path) -> tuple[Path, ...]:
    """Build a student copy in the folder `target` from `source`, a notebook or a folder of them.

    Returns the files written. Raises `SettingError` for a source that is not in order (see `problems`), before
    anything is written, and `Unavailable` where there is no notebook.
    """
    paths = [source] if source.is_file() else sorted(source.glob("*.ipynb"))
    if not paths:
        raise Unavailable(f"There is no notebook in {source}", "Name the folder that holds the notebooks.")
    if target.resolve() == (source if source.is_dir() else source.parent).resolve():
        raise SettingError(f"{target} is where the sources lie", "Build into another folder.")
    copies = {target / path.name: _checked_copy(path) for path in paths}
    target.mkdir(parents=True, exist_ok=True)
    for path, notebook in copies.items():
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    return tuple(copies)


def student_copy(notebook: NotebookNode) -> NotebookNode:
    """The student's form of `notebook`, which stays as it is."""
    cells = [_student_cell(cell) for cell in notebook.cells if "solution" not in _tags(cell)]
    metadata = {key: notebook.metadata[key] for key in _KEPT if key in notebook.metadata}
    copy: NotebookNode = nbformat.v4.new_notebook(cells=cells, metadata=metadata)  # type: ignore[no-untyped-call]
    return copy


def problems(notebook: NotebookNode) -> tuple[str, ...]:
    """What keeps a notebook from being a source, in words.

    Its marks must pair up. If it holds outputs, it must have run from top to bottom without an error: otherwise what it
    shows is not what it does.
    """
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code if cell.execution_count is not None]
    found = [f"cell {number}: {word}" for number, cell in enumerate(code, 1) if (word := _cell_problem(cell))]
    if counts != sorted(counts):
        found.append(f"its cells ran in the order {', '.join(map(str, counts))}, not from top to bottom")
    return tuple(found)


def _cell_problem(cell: NotebookNode) -> str:
    lines = cell.source.splitlines()
    marks = [bool(_BEGINS.match(line)) for line in lines if _BEGINS.match(line) or _ENDS.match(line)]
    if marks != [True, False] * (len(marks) // 2):
        return "`# solution begins` and `# solution ends` do not pair up"
    if any(output.output_type == "error" and output.ename != "NotImplementedError" for output in cell.outputs):
        return "it holds an error as its output"
    return ""


def _checked_copy(path: Path) -> NotebookNode:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    if found := problems(notebook):
        raise SettingError(f"{path.name} is not in order: {'; '.join(found)}", "Mend it, run all, save.")
    return student_copy(notebook)


def _student_cell(cell: NotebookNode) -> NotebookNode:
    copy: NotebookNode = deepcopy(cell)
    copy.source = _without_solutions(cell.source)
    copy.metadata.clear()
    if _tags(cell):
        copy.metadata["tags"] = _tags(cell)
    if cell.cell_type == "code":
        copy.outputs, copy.execution_count = [], None
    return copy


def _without_solutions(source: str) -> str:
    kept, inside = [], False
    for line in source.split("\n"):
        if begins := _BEGINS.match(line):
            kept.append(f"{begins['indent']}raise NotImplementedError  # your turn")
            inside = True
        elif _ENDS.match(line):
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def _tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))
