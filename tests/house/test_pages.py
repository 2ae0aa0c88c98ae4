"""What labkit shows must work offline, live and after years: the text of its sources, read by rules."""

import ast
import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".js", ".css", ".html", ".j2", ".md"}
SOURCES = sorted(file for file in (ROOT / "labkit").rglob("*") if file.suffix in SUFFIXES)
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

REMOTE = re.compile(
    r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)\s*=\s*["']?(?:https?:)?//"""  # a tag
    r"""|@import\s+(?:url\()?["']?https?://"""  # a style sheet
    r"""|\b(?:from|import)\s*\(?\s*["']https?://"""  # a module of the browser
    r"""|https?://[\w.]*(?:unpkg\.com|jsdelivr\.net|cdnjs\.|esm\.sh|skypack\.|cdn\.plot\.ly|fonts\.googleapis)""",
    re.IGNORECASE,
)


def text_of(file):
    return file.read_text(encoding="utf-8")


def test_sources_and_notebooks_were_found():
    assert len(SOURCES) > 30
    assert len(NOTEBOOKS) >= 4


def test_nothing_is_loaded_from_the_network_by_a_page():
    found = {str(file.relative_to(ROOT)): match[0] for file in SOURCES if (match := REMOTE.search(text_of(file)))}
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/x.js">',
        "<link rel=stylesheet href='//example.org/x.css'>",
        '@import url("https://example.org/x.css")',
        'import uPlot from "https://example.org/uplot"',
        "https://cdn.jsdelivr.net/npm/x",
    ],
)
def test_the_rule_for_the_network_finds(text):
    assert REMOTE.search(text)


def test_the_rule_for_the_network_lets_links_for_people_be():
    assert not REMOTE.search('<svg xmlns="http://www.w3.org/2000/svg"><a href="https://example.org/paper">')


def test_plotly_figures_are_never_updated_through_a_display_id():
    """JupyterLab's plotly renderer ignores such an update (plotly.py 3053)."""
    assert [file for file in SOURCES if "display_id" in text_of(file) and "plotly" in text_of(file)] == []


def test_no_cell_polls_for_events_of_the_page():
    """A polling loop gets no event in ipykernel 7 (jupyter-ui-poll 54)."""
    files = [file for file in [*SOURCES, *NOTEBOOKS] if re.search(r"ui_events|jupyter_ui_poll", text_of(file))]
    assert files == []


def widget_classes():
    """Every anywidget class of labkit, with what it calls its script."""
    anywidget = importlib.import_module("anywidget")
    for file in (ROOT / "labkit" / "ui").rglob("*.py"):
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        for _, thing in inspect.getmembers(module, inspect.isclass):
            if issubclass(thing, anywidget.AnyWidget) and thing.__module__ == module.__name__:
                yield thing


def test_the_script_of_a_widget_is_text_and_never_a_path():
    """A widget whose _esm is a Path is never freed (anywidget 929)."""
    classes = list(widget_classes())
    assert classes
    assert [thing for thing in classes if not isinstance(inspect.getattr_static(thing, "_esm"), str)] == []


def test_no_script_of_a_widget_is_given_as_a_path_in_the_source():
    for file in (file for file in SOURCES if file.suffix == ".py"):
        for node in ast.walk(ast.parse(text_of(file))):
            if isinstance(node, ast.Assign) and any(
                getattr(target, "id", "") in ("_esm", "_css") for target in node.targets
            ):
                called = node.value.func if isinstance(node.value, ast.Call) else None
                assert getattr(called, "id", "") != "Path", f"{file}:{node.lineno}"
                assert not isinstance(node.value, ast.BinOp), f"{file}:{node.lineno}: a path put together, or text?"


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
class TestNotebook:
    def test_it_names_the_kernel_python3_and_no_other(self, file):
        """A kernel of another name is missing on the next machine (papermill 638)."""
        assert json.loads(text_of(file))["metadata"]["kernelspec"]["name"] == "python3"

    def test_it_holds_no_outputs_and_no_state_of_widgets(self, file):
        notebook = json.loads(text_of(file))
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert code
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
        assert "widgets" not in notebook["metadata"]

    def test_no_cell_of_code_is_longer_than_25_lines(self, file):
        cells = [cell for cell in json.loads(text_of(file))["cells"] if cell["cell_type"] == "code"]
        sizes = [len("".join(cell["source"]).splitlines()) for cell in cells]
        assert max(sizes) <= 25

    def test_every_cell_has_an_id_of_its_own_and_the_notebook_is_valid(self, file):
        nbformat = importlib.import_module("nbformat")
        notebook = json.loads(text_of(file))
        ids = [cell.get("id") for cell in notebook["cells"]]
        assert None not in ids
        assert len(set(ids)) == len(ids)
        nbformat.validate(notebook)

    def test_it_is_small(self, file):
        assert file.stat().st_size < 100_000
