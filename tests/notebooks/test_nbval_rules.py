"""nbval may judge the notebooks because it is shown here to be calm about noise and strict about the rest."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(300)]

Nbval = Callable[..., subprocess.CompletedProcess[str]]

NOISE = """import sys, uuid, warnings
from IPython.display import display
warnings.warn('soon gone', DeprecationWarning, stacklevel=1)
print(uuid.uuid4(), file=sys.stderr)
display({'application/vnd.plotly.v1+json': {'data': [{'uid': str(uuid.uuid4())}]}, 'text/plain': 'A figure'}, raw=True)
print('the same each time')"""


def _saved(path: Path, source: str, printed: str) -> Path:
    figure = {"application/vnd.plotly.v1+json": {"data": [{"uid": "another"}]}, "text/plain": "A figure"}
    outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="other noise\n"),
        nbformat.v4.new_output("display_data", data=figure),
        nbformat.v4.new_output("stream", text=f"{printed}\n"),
    ]
    cells = [nbformat.v4.new_code_cell(source, outputs=outputs, execution_count=1)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)
    return path


def test_noise_on_standard_error_and_random_ids_break_nothing(tmp_path: Path, nbval: Nbval) -> None:
    done = nbval(_saved(tmp_path / "noise.ipynb", NOISE, "the same each time"), "--nbval")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_another_word_on_standard_output_does_break(tmp_path: Path, nbval: Nbval) -> None:
    done = nbval(_saved(tmp_path / "changed.ipynb", NOISE, "something else"), "--nbval")
    assert done.returncode == 1, done.stdout


def test_a_failing_cell_breaks_even_the_lax_run(tmp_path: Path, nbval: Nbval) -> None:
    done = nbval(_saved(tmp_path / "failing.ipynb", "1 / 0", ""))
    assert done.returncode == 1, done.stdout
    assert "ZeroDivisionError" in done.stdout
