from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from labkit.errors import SettingError, Unavailable
from labkit.teach import build_student
from labkit.teach.build import problems, student_copy

EXERCISE = """def littles_law(rate_per_s, latency_ms):
    # Mind the units.
    # solution begins
    seconds = latency_ms / 1000
    return rate_per_s * seconds
    # solution ends
"""


def _code(source: str, *tags: str, count: int | None = None, outputs: tuple[NotebookNode, ...] = ()) -> NotebookNode:
    metadata: dict[str, Any] = {"tags": list(tags)} if tags else {}
    return nbformat.v4.new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


def _error(name: str) -> NotebookNode:
    return nbformat.v4.new_output("error", ename=name, evalue="", traceback=[])


def _notebook(*cells: NotebookNode) -> NotebookNode:
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "papermill": {"status": "x"},
        "widgets": {"state": 1},
    }
    return nbformat.v4.new_notebook(cells=list(cells), metadata=metadata)


def _saved(folder: Path, *cells: NotebookNode, name: str = "10_lab") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(_notebook(*cells), path)
    return path


def test_solution_cells_go_and_solution_lines_become_a_stub() -> None:
    markdown = nbformat.v4.new_markdown_cell("The answer is L = λW.", metadata={"tags": ["solution"]})
    copy = student_copy(_notebook(_code(EXERCISE, "exercise"), _code("answer = 15", "solution"), markdown))
    (cell,) = copy.cells
    assert cell.source == (
        "def littles_law(rate_per_s, latency_ms):\n    # Mind the units.\n    raise NotImplementedError  # your turn\n"
    )
    assert cell.metadata.tags == ["exercise"]


def test_outputs_counts_and_foreign_metadata_go_and_the_source_stays_as_it_was() -> None:
    source = _notebook(_code("print(1)", count=1, outputs=(nbformat.v4.new_output("stream", text="1"),)))
    copy = student_copy(source)
    assert (copy.cells[0].outputs, copy.cells[0].execution_count) == ([], None)
    assert set(copy.metadata) == {"kernelspec"}
    assert source.cells[0].execution_count == 1
    nbformat.validate(copy)


def test_executed_out_of_order_is_refused(tmp_path: Path) -> None:
    path = _saved(tmp_path / "in", _code("a = 1", count=1), _code("b = a", count=3), _code("c = b", count=2))
    with pytest.raises(SettingError, match="ran in the order 1, 3, 2"):
        build_student(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_stored_error_is_refused_but_a_stub_that_raises_notimplementederror_is_not() -> None:
    assert problems(_notebook(_code("1 / 0", count=1, outputs=(_error("ZeroDivisionError"),)))) == (
        "cell 1: it holds an error as its output",
    )
    assert problems(_notebook(_code("f()", count=1, outputs=(_error("NotImplementedError"),)))) == ()


@pytest.mark.parametrize(
    "source",
    ["# solution begins\nx = 1", "x = 1\n# solution ends", "# solution begins\n# solution begins\n# solution ends"],
)
def test_marks_that_do_not_pair_up_are_refused(source: str) -> None:
    assert "do not pair up" in problems(_notebook(_code(source)))[0]


def test_one_bad_notebook_stops_the_whole_build(tmp_path: Path) -> None:
    _saved(tmp_path / "in", _code("fine = 1"), name="10_fine")
    _saved(tmp_path / "in", _code("# solution begins"), name="11_bad")
    with pytest.raises(SettingError, match="11_bad"):
        build_student(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_sources_are_never_overwritten(tmp_path: Path) -> None:
    path = _saved(tmp_path / "in", _code("x = 1"))
    for source in (path, path.parent):
        with pytest.raises(SettingError, match="where the sources lie"):
            build_student(source, tmp_path / "in")


def test_a_folder_without_notebooks_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no notebook"):
        build_student(tmp_path, tmp_path / "out")


@pytest.mark.notebooks
def test_a_student_copy_runs_to_its_end_before_anything_is_solved(tmp_path: Path) -> None:
    law = 'exercise("00a")'
    path = _saved(
        tmp_path / "in",
        _code("from labkit.teach import exercise"),
        _code(EXERCISE, "exercise"),
        _code(f"{law}.check(littles_law)"),
        _code(f"littles_law = {law}.continue_with(littles_law)\nprint(littles_law(300, 50))"),
    )
    (copy,) = build_student(path.parent, tmp_path / "out")
    student, solved = (nbformat.read(file, as_version=4) for file in (copy, path))
    for notebook in (student, solved):
        NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    assert "not attempted" in student.cells[2].outputs[0].data["text/plain"]
    assert "the reference solution" in student.cells[3].outputs[0].data["text/plain"]
    assert student.cells[3].outputs[1].text == "15.0\n"
    assert 'role="status"' in solved.cells[2].outputs[0].data["text/html"]
    assert "passed" in solved.cells[2].outputs[0].data["text/plain"]
    assert [output.get("text") for output in solved.cells[3].outputs] == ["15.0\n"]
