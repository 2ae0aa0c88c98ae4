import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode

from labkit.report import ReportRow, export_html
from labkit.report.outline import add_outline

PLOTLY = "application/vnd.plotly.v1+json"


def _display(**data: Any) -> NotebookNode:
    return nbformat.v4.new_output("display_data", data={key.replace("__", "/"): value for key, value in data.items()})


def _plotly_only(text: str = "A line") -> NotebookNode:
    figure = go.Figure(go.Scatter(y=[1, 2, 3], name="</script><b>bold</b>")).to_plotly_json()
    return nbformat.v4.new_output("display_data", data={PLOTLY: figure, "text/plain": text})


@pytest.fixture
def export(make_notebook: Callable[..., Path]) -> Callable[..., BeautifulSoup]:
    def run(*cells: Any, row: ReportRow | None = None) -> BeautifulSoup:
        return BeautifulSoup(export_html(make_notebook(*cells), row=row).read_text(), "html.parser")

    return run


@pytest.fixture
def row() -> ReportRow:
    result = {"verdict": "16 rows <meet> the goal.", "best": 16}
    versions = {"labkit": "0.1.0", "torch": "2.13.0"}
    return ReportRow("10_lab", "ok", "2026-01-02T03:04:05Z", 41.6, {"rows": 4}, result, versions)


def test_the_title_is_the_first_heading_and_the_language_is_set(export: Any) -> None:
    page = export("#% # What a *batch* costs\nText.", "x = 1")
    assert page.title.string == "What a batch costs"
    assert [heading.get_text() for heading in page.select("h1")] == ["What a batch costs"]
    assert page.html["lang"] == "en"


def test_without_a_heading_the_file_name_is_the_title(export: Any) -> None:
    assert export("x = 1").title.string == "10_lab"


def test_the_verdict_stands_right_under_the_title_and_the_row_at_the_end(export: Any, row: ReportRow) -> None:
    page = export("#% # Title", "#% ## Part", "x = 1", row=row)
    assert page.select_one("h1 + .verdict").get_text() == "16 rows <meet> the goal."
    facts = page.select_one("footer").get_text()
    assert all(word in facts for word in ("41.6 s", "torch 2.13.0", "rows = 4", "labkit report 10_lab -p rows=4"))


def test_a_verdict_that_the_notebook_shows_itself_is_not_said_twice(export: Any, new_code: Any, row: ReportRow) -> None:
    own = new_code("show()", outputs=[_display(text__html='<p class="verdict">Mine.</p>')])
    page = export("#% # Title", own, row=row)
    assert [verdict.get_text() for verdict in page.select(".verdict")] == ["Mine."]


def test_code_is_folded_under_its_first_line(export: Any) -> None:
    page = export("# Measure\nx = 1")
    (fold,) = page.select("details.source")
    assert fold.summary.get_text() == "Code: Measure"
    assert not fold.has_attr("open")
    assert "x = 1" in fold.get_text().replace("\xa0", " ")


def test_tags_hide_code_and_remove_cells(export: Any, new_code: Any) -> None:
    stream = nbformat.v4.new_output("stream", text="shown output")
    hidden = new_code("secret = 1", "hide-input", outputs=[stream])
    removed = new_code("gone = 1", "remove-cell", outputs=[nbformat.v4.new_output("stream", text="lost output")])
    page = export("# parameters\nrows: int = 1", hidden, removed)
    text = page.select_one("main").get_text()
    assert "shown output" in text
    assert not any(word in text for word in ("secret", "gone", "lost output"))
    assert page.select_one("section.parameters summary").get_text() == "Parameters and their defaults"


def test_a_page_without_figures_carries_no_plotting_library(export: Any) -> None:
    page = export("#% # Title", "x = 1")
    assert page.select("script") == []


def test_plotly_goes_into_the_head_once_for_any_number_of_figures(export: Any, new_code: Any) -> None:
    page = export(*[new_code("draw()", outputs=[_plotly_only()]) for _ in range(3)])
    big = [script for script in page.select("script") if len(script.string or "") > 1_000_000]
    assert [script.parent.name for script in big] == ["head"]
    assert len(page.select(".labkit-figure")) == 3


def test_a_label_cannot_end_the_script_that_holds_the_figure(export: Any, new_code: Any) -> None:
    page = export(new_code("draw()", outputs=[_plotly_only()]))
    assert page.select("main b") == []


def test_a_figures_words_are_its_accessible_name(export: Any, new_code: Any) -> None:
    page = export(new_code("draw()", outputs=[_plotly_only('p99 is "71" ms')]))
    assert page.select_one("[role=img]")["aria-label"] == 'p99 is "71" ms'


def test_no_content_network_means_no_script_link_or_picture_from_elsewhere(
    export: Any, new_code: Any, row: ReportRow
) -> None:
    """nbconvert's own templates load MathJax, require.js and the widget manager from content networks."""
    widget = _display(**{"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text__plain": "Panel()"})
    page = export("#% # T\n$x^2$", new_code("draw()", outputs=[_plotly_only(), widget]), row=row)
    loaded = [tag.get("src") or tag.get("href") for tag in page.select("[src], link[href]")]
    assert [address for address in loaded if not address.startswith("data:")] == []
    assert not re.search(r"@import|url\(\s*['\"]?http", "".join(style.string or "" for style in page.select("style")))
    assert "A live panel stands here" in page.get_text()


def test_a_report_needs_no_browser_to_be_written(export: Any, new_code: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("BROWSER_PATH", "/nonexistent")
    assert export(new_code("draw()", outputs=[_plotly_only()])).select(".labkit-figure")


def test_messages_and_errors_are_told_apart_and_escaped(export: Any, new_code: Any) -> None:
    warned = nbformat.v4.new_output("stream", name="stderr", text="careful <now>")
    failed = nbformat.v4.new_output("error", ename="E", evalue="<x>", traceback=["\x1b[31mE\x1b[0m: <x>"])
    page = export(new_code("boom()", outputs=[warned, failed]))
    assert page.select_one("details.stderr pre").get_text() == "careful <now>"
    assert page.select_one("pre.error#failure").get_text().strip() == "E: <x>"


def test_pictures_have_an_alternative_text(export: Any, new_code: Any) -> None:
    picture = _display(image__png="aGVsbG8=\n", text__plain="<Figure of a cat>")
    image = export(new_code("show()", outputs=[picture])).select_one("img")
    assert image["alt"] == "<Figure of a cat>"
    assert image["src"] == "data:image/png;base64,aGVsbG8="


def test_contents_link_to_every_heading_even_to_twins() -> None:
    html = "<html><body><nav></nav><main><h2>A b</h2><h3>Limits</h3><h2>Limits</h2></main></body></html>"
    page = BeautifulSoup(add_outline(html), "html.parser")
    assert [link["href"] for link in page.select("nav a")] == ["#a-b", "#limits", "#limits-2"]
    assert [heading["id"] for heading in page.select("h2, h3")] == ["a-b", "limits", "limits-2"]


def test_a_short_page_needs_no_contents() -> None:
    page = BeautifulSoup(add_outline("<nav></nav><main><h2>One</h2></main>"), "html.parser")
    assert page.select_one("nav").get_text() == ""


def test_what_a_cell_prints_bit_by_bit_stands_in_one_box(tmp_path: Path) -> None:
    streams = [nbformat.v4.new_output("stream", name="stdout", text=f"stage {n}\n") for n in range(3)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("run()", outputs=streams)])
    path = tmp_path / "stages.ipynb"
    nbformat.write(notebook, path)
    page = export_html(path).read_text(encoding="utf-8")
    assert "stage 0\nstage 1\nstage 2" in page
