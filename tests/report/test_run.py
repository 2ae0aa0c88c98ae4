"""Real runs of small notebooks; the tests that are named after a fault are about that fault in the tools below."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.errors import CellFailed, CellTimeout, KernelDied, ReportIncomplete, SettingError, UnknownName
from labkit.report import ReportResult, run_report
from labkit.report.kernel import Limits

pytestmark = pytest.mark.notebooks

PARAMETERS = "# parameters\nrows: int = 16  # a cap\nname: str = 'x'"
FACTS = """import json, os, pathlib, sys
from IPython.display import display
facts = dict(mode=os.environ['LABKIT_MODE'], cwd=os.getcwd(), python=sys.executable, rows=rows)
print(json.dumps(facts))"""
KILL = "import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"


def _printed(result: ReportResult) -> dict[str, Any]:
    notebook = nbformat.read(result.notebook, as_version=4)
    texts = [output.text for cell in notebook.cells for output in cell.get("outputs", []) if "text" in output]
    return json.loads(texts[-1])


def _row_of_the_only_run(out: Path) -> dict[str, Any]:
    (path,) = out.glob("*.json")
    return json.loads(path.read_text())


def test_a_good_run_leaves_three_files_and_a_row(make_notebook: Any, record_cell: str, out: Path) -> None:
    path = make_notebook("#% # The title", PARAMETERS, FACTS, record_cell)
    result = run_report(path, {"rows": 4}, out=out, quiet=True)
    assert result.error is None
    assert (result.row.status, result.row.verdict, result.row.result["best"]) == ("ok", "It holds.", 16)
    assert result.row.parameters == {"rows": 4, "name": "x"}
    assert sorted(file.suffix for file in out.iterdir()) == [".html", ".ipynb", ".json"]
    assert result.row.command == "labkit report 10_lab -p rows=4 -p name=x"
    assert json.loads(result.notebook.with_suffix(".json").read_text())["versions"]["python"] in sys.version
    facts = _printed(result)
    assert facts == {"mode": "headless", "cwd": str(path.parent), "python": sys.executable, "rows": 4}
    assert nbformat.read(result.notebook, as_version=4).metadata.kernelspec.name == "python3"


def test_two_runs_never_share_a_file(make_notebook: Any, record_cell: str, out: Path) -> None:
    from labkit.report.run import _Files

    names = {_Files.reserve(out, "10_lab", {"rows": 4}).notebook for _ in range(3)}
    assert len(names) == 3
    assert _Files.reserve(out, "10_lab", {"rows": 5}).notebook.name[-13:] != sorted(names)[0].name[-13:]


def test_unknown_parameters_accepted_by_papermill_stop_the_run_before_it_starts(make_notebook: Any, out: Path) -> None:
    path = make_notebook(PARAMETERS, KILL)
    with pytest.raises(UnknownName, match="Did you mean 'rows'"):
        run_report(path, {"row": 4}, out=out, quiet=True)
    with pytest.raises(SettingError, match="must be of type int"):
        run_report(path, {"rows": "many"}, out=out, quiet=True)
    assert not out.exists()


def test_a_failing_cell_is_raised_and_the_report_says_so_on_top(
    make_notebook: Any, record_cell: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_notebook("#% # Title", "x = 1", "# Divide\n1 / 0", record_cell)
    with pytest.raises(CellFailed, match=r"ZeroDivisionError: division by zero, in cell 2 \('Divide'\)"):
        run_report(path, out=out)
    row = _row_of_the_only_run(out)
    assert row["status"] == "failed"
    (html,) = out.glob("*.html")
    page = html.read_text()
    assert page.index("This report is not complete") < page.index("<h1>Title")
    assert 'id="failure"' in page
    assert "[ 1/3] x = 1" in capsys.readouterr().err


def test_a_killed_kernel_whose_notebook_calls_itself_completed_has_died(
    make_notebook: Any, record_cell: str, out: Path
) -> None:
    path = make_notebook("x = 1", KILL, record_cell)
    with pytest.raises(KernelDied, match=r"The kernel died in cell 2"):
        run_report(path, out=out, quiet=True)
    assert _row_of_the_only_run(out)["status"] == "died"
    (saved,) = out.glob("*.ipynb")
    notebook = nbformat.read(saved, as_version=4)
    assert "The kernel died" in notebook.cells[0].source
    assert notebook.metadata.labkit.status == "died"
    assert "papermill" not in saved.read_text()  # whose metadata would say: completed


def test_a_crash_of_the_interpreter_brings_its_last_words(make_notebook: Any, out: Path) -> None:
    crash = "import faulthandler, sys\nfaulthandler.enable(sys.__stderr__)\nfaulthandler._sigsegv()"
    error = run_report(make_notebook(crash), out=out, quiet=True, check=False).error
    assert isinstance(error, KernelDied)
    assert "Fatal Python error: Segmentation fault" in str(error)


@pytest.mark.parametrize(
    "ending",
    ["import sys\nsys.exit(0)", "raise SystemExit", "%%script false --no-raise-error\nrecord"],
    ids=["exit", "raise", "magic"],
)
def test_silent_success_on_exit_or_magic_is_incomplete(make_notebook: Any, out: Path, ending: str) -> None:
    result = run_report(make_notebook("x = 1", ending), out=out, quiet=True, check=False)
    assert isinstance(result.error, ReportIncomplete)
    assert result.row.status == "incomplete"
    assert "This report is not complete" in result.html.read_text()


def test_exit_after_the_result_was_recorded_is_still_incomplete(
    make_notebook: Any, record_cell: str, out: Path
) -> None:
    path = make_notebook(record_cell, "import sys\nsys.exit(0)", "late = 1")
    with pytest.raises(ReportIncomplete, match="after 2 of 3 code cells"):
        run_report(path, out=out, quiet=True)


@pytest.mark.parametrize(
    ("limits", "words"),
    [(Limits(cell_s=0.5), "limit of 0.5 s for a cell"), (Limits(total_s=0.5), "limit of 0.5 s for the whole report")],
    ids=["cell", "total"],
)
def test_a_cell_past_its_limit_is_a_timeout(make_notebook: Any, out: Path, limits: Limits, words: str) -> None:
    path = make_notebook("# Sleep\nimport time\ntime.sleep(60)")
    with pytest.raises(CellTimeout, match=words):
        run_report(path, out=out, limits=limits, quiet=True)
    assert _row_of_the_only_run(out)["status"] == "timeout"


def test_limits_must_be_positive() -> None:
    with pytest.raises(SettingError, match="cell_s is 0"):
        Limits(cell_s=0)


def test_no_such_kernel_cannot_happen(
    make_notebook: Any, record_cell: str, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notebook names a kernel that nobody has, and a broken python3 is registered: neither matters."""
    broken = tmp_path / "jupyter" / "kernels" / "python3"
    broken.mkdir(parents=True)
    (broken / "kernel.json").write_text('{"argv": ["/bin/false"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    result = run_report(make_notebook(PARAMETERS, FACTS, record_cell, kernel="somebodys-env"), out=out, quiet=True)
    assert _printed(result)["python"] == sys.executable


def test_a_venv_without_registered_kernels_runs_reports(make_notebook: Any, record_cell: str, out: Path) -> None:
    home = out.parent / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (site,) = home.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text("\n".join([*packages, str(Path(__file__).parents[2])]))
    path = make_notebook(PARAMETERS, FACTS, record_cell)
    command = [python, "-m", "labkit", "report", path, "--out", out, "--quiet"]
    environment = {**os.environ, "JUPYTER_PATH": "", "JUPYTER_DATA_DIR": str(home / "nothing")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert not (home / "share" / "jupyter").exists()
    (saved,) = out.glob("*.ipynb")
    assert f'\\"python\\": \\"{python}\\"' in saved.read_text()
    assert done.stdout.splitlines()[-1] == str(saved.with_suffix(".html"))


def test_notebooks_of_many_megabytes_do_not_come_back(make_notebook: Any, record_cell: str, out: Path) -> None:
    """A figure and a widget: neither plotly.js nor widget state may end in the saved notebook."""
    draw = (
        "import plotly.graph_objects as go\nfrom IPython.display import display\nimport ipywidgets\n"
        "display(ipywidgets.IntSlider())\ngo.Figure(go.Scatter(y=list(range(500)))).show()"
    )
    result = run_report(make_notebook(draw, record_cell), out=out, quiet=True)
    assert result.notebook.stat().st_size < 300_000
    assert "widgets" not in nbformat.read(result.notebook, as_version=4).metadata


def test_parameters_of_any_text_arrive_unharmed(make_notebook: Any, record_cell: str, out: Path) -> None:
    text = "批处理 'quoted' \"double\" {brace} \\n $x"
    show = "import json\nprint(json.dumps({'name': name}))"
    result = run_report(make_notebook(PARAMETERS, show, record_cell), {"name": text}, out=out / "{odd}", quiet=True)
    assert _printed(result)["name"] == text
