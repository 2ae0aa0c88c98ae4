import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import pytest
from typer.testing import CliRunner

import labkit
from labkit.cli import app
from labkit.errors import MeasureError, Unavailable
from labkit.measure import ResultRow, open_store

RECORD = "from labkit.report import record_result\nrecord_result(verdict='It holds.', rows=rows)"


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one notebook."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LABKIT_DEBUG", raising=False)
    _save(tmp_path / "notebooks" / "90_report_demo.ipynb", RECORD)
    return tmp_path


def _save(path: Path, *sources: str) -> None:
    parameters = nbformat.v4.new_code_cell("rows: int = 16", metadata={"tags": ["parameters"]})
    cells = [parameters, *map(nbformat.v4.new_code_cell, sources)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def _stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """Put `members` in place of those of the module `name`."""
    module = import_module(name)
    for member, value in members.items():
        monkeypatch.setattr(module, member, value)


@pytest.fixture
def benches(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in for labkit.bench, so that nothing is measured here."""
    module = ModuleType("labkit.bench")
    module.names = lambda: ["batching", "sharding"]
    monkeypatch.setitem(sys.modules, "labkit.bench", module)
    monkeypatch.setattr(labkit, "bench", module, raising=False)
    return module


def test_version_prints_the_version() -> None:
    assert run("version").stdout == f"{labkit.__version__}\n"


def test_help_lists_every_command() -> None:
    text = run("--help").stdout
    for command in ("doctor", "lab", "report", "bench", "fetch", "build-student", "version"):
        assert command in text


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run("reprot", "x").exit_code == 2


@pytest.mark.notebooks
def test_report_prints_the_verdict_and_the_path_of_the_html_last(folder: Path) -> None:
    done = run("report", "demo", "-p", "rows=4", "--out", "somewhere")
    assert done.exit_code == 0, done.stderr
    *_, verdict, last = done.stdout.splitlines()
    assert verdict == "It holds."
    assert last.endswith(".html")
    assert Path(last).parent == folder / "somewhere"
    assert json.loads(Path(last).with_suffix(".json").read_text())["result"]["rows"] == 4
    assert "[ 1/3]" in done.stderr


@pytest.mark.notebooks
def test_a_failed_report_exits_1_says_why_and_still_names_its_page(folder: Path) -> None:
    _save(folder / "notebooks" / "91_report_bad.ipynb", "1 / 0")
    done = run("report", "91_report_bad", "--quiet")
    assert done.exit_code == 1
    assert done.stderr.startswith("labkit: ZeroDivisionError: division by zero, in cell 2")
    assert len(done.stderr.splitlines()) == 1
    assert "This report is not complete" in Path(done.stdout.splitlines()[-1]).read_text()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["report", "90_report_dmo"], "Did you mean '90_report_demo'"),
        (["report", "demo", "-p", "row=4"], "Did you mean 'rows'"),
        (["report", "demo", "-p", "rows=many"], "must be of type int"),
        (["report", "demo", "-p", "rows"], "not of the form name=value"),
        (["report", "demo", "--limit-s", "0"], "total_s is 0"),
    ],
)
def test_a_wrong_request_is_one_clear_line_and_exit_code_2(folder: Path, arguments: list[str], hint: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert hint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.output
    assert not (folder / "reports").exists()


def test_debug_shows_the_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_DEBUG", "1")
    done = run("report", "nothing")
    assert type(done.exception).__name__ == "UnknownName"


class _Benchmark:
    def __init__(self, holds: bool) -> None:
        self.holds = holds

    def print(self) -> None:
        print("a table")

    def write_json(self, path: Path) -> None:
        path.write_text(json.dumps({"checks": [{"holds": self.holds}]}))


def test_bench_exits_0_whether_or_not_its_checks_hold(tmp_path: Path, benches: ModuleType) -> None:
    asked = []

    def measure(name: str, quick: bool) -> _Benchmark:
        asked.append((name, quick))
        return _Benchmark(holds=False)

    benches.run = measure
    done = run("bench", "batching", "--quick", "--json", tmp_path / "rows.json")
    assert (done.exit_code, done.stdout) == (0, "a table\n")
    assert asked == [("batching", True)]
    assert json.loads((tmp_path / "rows.json").read_text()) == {"checks": [{"holds": False}]}


def test_bench_exits_1_only_when_it_could_not_measure(benches: ModuleType) -> None:
    def measure(name: str, quick: bool) -> _Benchmark:
        raise MeasureError("The machine is too busy", "Close other programs.")

    benches.run = measure
    done = run("bench", "batching")
    assert done.exit_code == 1
    assert done.stderr == "labkit: The machine is too busy. Close other programs.\n"


def test_bench_without_a_name_lists_what_there_is(benches: ModuleType) -> None:
    assert run("bench").stdout == "batching\nsharding\n"


def test_fetch_prints_where_the_models_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, "labkit.models.fetch", fetch_all=lambda: (Path("/cache/minilm"),))
    assert run("fetch").stdout == "/cache/minilm\n"


def test_fetch_without_a_network_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> None:
        raise Unavailable("No source answered", "Set LABKIT_MODELS.")

    _stand_in(monkeypatch, "labkit.models.fetch", fetch_all=nothing)
    done = run("fetch")
    assert (done.exit_code, done.stderr) == (1, "labkit: No source answered. Set LABKIT_MODELS.\n")


def test_lab_opens_jupyterlab_on_the_notebooks_and_passes_its_exit_code_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def start(notebooks: Path, port: int | None, browser: bool, extra_args: list[str]) -> int:
        calls.append((notebooks, port, browser, list(extra_args)))
        return 3

    _stand_in(monkeypatch, "labkit.ui.jupyterlab", start=start)
    done = run("lab", "--port", "8890", "--no-browser", "--ServerApp.ip=0.0.0.0")
    assert done.exit_code == 3
    assert calls == [(folder / "notebooks", 8890, False, ["--ServerApp.ip=0.0.0.0"])]


def test_build_student_prints_the_copies(folder: Path) -> None:
    done = run("build-student", "--to", "copies")
    assert done.exit_code == 0
    assert done.stdout == "copies/90_report_demo.ipynb\n"
    assert Path("copies/90_report_demo.ipynb").exists()


@pytest.mark.parametrize(("fine", "code"), [(True, 0), (False, 1)])
def test_doctor_exits_by_what_it_found(monkeypatch: pytest.MonkeyPatch, fine: bool, code: int) -> None:
    findings = [SimpleNamespace(ok=True), SimpleNamespace(ok=fine)]
    shown: list[Any] = []
    _stand_in(monkeypatch, "labkit.report.doctor", examine=lambda: findings, render=shown.append)
    assert run("doctor").exit_code == code
    assert shown == [findings]


def test_nothing_heavy_is_loaded_to_say_the_version() -> None:
    import subprocess

    code = (
        "import labkit.cli, sys; print([m for m in ('torch', 'papermill', 'plotly', 'ipywidgets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_results_shows_and_exports_what_the_store_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_RESULTS", str(tmp_path / "results.sqlite"))
    empty = run("results")
    assert (empty.exit_code, "No results" in empty.output) == (0, True)
    open_store().add(ResultRow("lab", "p99", 52.0, "ms", "measured"))
    assert "52" in run("results").output
    exported = run("results", "--csv", tmp_path / "all.csv")
    assert "1 rows" in exported.output
    assert "p99" in (tmp_path / "all.csv").read_text()
