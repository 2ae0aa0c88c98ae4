"""An exported report in a real Chromium, without a network."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from playwright.sync_api import Browser, Page

from labkit.report import export_html
from labkit.ui import figures
from labkit.ui.bundle import data_table, figure_bundle

pytestmark = pytest.mark.browser


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1400, "height": 900}, offline=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def report(make_notebook: Callable[..., Path], new_code: Any) -> Path:
    """One figure made by labkit, and two by plotly alone."""
    ours = figures.lines(
        [("greedy", 1.0, 20.0), ("greedy", 2.0, 31.0)], title="Latency", x="rate (1/s)", y="latency (ms)"
    )
    bundles = [_shown(ours), [_bare()], [_bare()]]
    cells = [new_code("draw()", outputs=bundle) for bundle in bundles]
    return export_html(make_notebook("#% # Title", "#% ## Part one", *cells, "#% ## Part two", "#% ## Part three"))


def _shown(figure: go.Figure) -> list[Any]:
    """The outputs that `figures.show` leaves in a notebook."""
    content = json.loads(figure.to_json())
    bundles = (figure_bundle(content, "Latency rises."), data_table(content))
    return [nbformat.v4.new_output("display_data", data=bundle) for bundle in bundles]


def _bare() -> Any:
    content = go.Figure(go.Scatter(y=[1, 3, 2])).to_plotly_json()
    return nbformat.v4.new_output("display_data", data={"application/vnd.plotly.v1+json": content})


def _open(page: Page, report: Path) -> tuple[list[str], list[str]]:
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri())
    page.wait_for_function("document.querySelectorAll('.main-svg').length > 0")
    page.wait_for_load_state("networkidle")
    return requests, complaints


def test_no_plot_is_missing_in_the_html_export(page: Page, report: Path) -> None:
    requests, complaints = _open(page, report)
    drawn = page.locator(".labkit-figure").evaluate_all("boxes => boxes.map(b => b.querySelectorAll('.trace').length)")
    assert drawn == [1, 1, 1]
    assert requests == [report.as_uri()]
    assert complaints == []


def test_no_figure_is_narrower_than_its_box(page: Page, report: Path) -> None:
    _open(page, report)
    shares = page.locator(".labkit-figure").evaluate_all(
        "boxes => boxes.map(b => b.querySelector('.main-svg').getBoundingClientRect().width"
        " / b.closest('.output').getBoundingClientRect().width)"
    )
    assert len(shares) == 3
    assert min(shares) >= 0.9


def test_a_narrow_screen_scrolls_down_only(page: Page, report: Path) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    _open(page, report)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_the_contents_lead_to_their_parts_and_the_fold_opens_by_keyboard(page: Page, report: Path) -> None:
    _open(page, report)
    page.get_by_role("navigation", name="Contents").get_by_role("link", name="Part three").click()
    assert page.url.endswith("#part-three")
    fold = page.locator("details.source").first
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    assert fold.get_attribute("open") is not None
