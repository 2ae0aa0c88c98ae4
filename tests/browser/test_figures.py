"""Static figures in a real JupyterLab."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

FIGURE = """
from labkit.ui import figures
slopes = {"greedy": 0.02, "max wait 5 ms": 0.035, "no batching": 0.11}
points = [(name, x, slope * x ** 1.4 + 8) for name, slope in slopes.items() for x in range(20, 420, 20)]
figures.show(figures.lines(points, title="What waiting costs", x="rate (requests/s)", y="p99 latency (ms)",
             hlines=[("SLO 100 ms", 100)], vlines=[("bound", 380)]))
"""


def test_plotly_4027_a_figure_fills_the_width_of_its_output_at_first_paint(lab_page, write_notebook, screenshots):
    lab = lab_page(write_notebook("figure", FIGURE))
    lab.run_all()
    lab.wait_idle()
    plot = lab.page.locator(".main-svg").first
    plot.wait_for()
    output = lab.page.locator(".jp-OutputArea-output").first
    assert plot.bounding_box()["width"] >= 0.9 * output.bounding_box()["width"]
    lab.page.locator(".jp-OutputArea").first.screenshot(path=screenshots / "figure_light.png")
    lab.use_theme("JupyterLab Dark", to_look_at=True)
    lab.page.locator("summary", has_text="Data as a table").click()
    lab.page.locator(".jp-OutputArea").first.screenshot(path=screenshots / "figure_dark.png")
    lab.use_theme("JupyterLab Light")
    assert lab.page.locator("details table tbody tr").count() == 60
    assert lab.complaints == []


def test_a_headless_panel_shows_its_charts_as_one_figure(lab_page, write_notebook, screenshots):
    lab = lab_page(
        write_notebook(
            "headless",
            "import os\nos.environ['LABKIT_MODE'] = 'headless'\n"
            "from fake_lab import panel\npanel('headless', steps=60).show()",
        )
    )
    lab.run_all()
    lab.page.locator(".main-svg").first.wait_for(timeout=60_000)
    lab.wait_idle()
    lab.page.locator(".jp-OutputArea").first.screenshot(path=screenshots / "headless.png")
    assert lab.page.get_by_text("Driving the model").is_visible()
    assert lab.page.locator(".labkit-panel").count() == 0
    assert lab.complaints == []


@pytest.mark.parametrize("library_first", [True, False])
def test_an_exported_figure_is_drawn_whether_plotly_comes_before_or_after_it(chromium, tmp_path, library_first):
    from plotly.offline import get_plotlyjs

    from labkit.ui import figures
    from labkit.ui.bundle import figure_bundle

    figure = figures.lines([("p99", 1, 2), ("p99", 2, 3)], title="A <b> & B", x="x", y="y </script>")
    body = figure_bundle(figure.to_plotly_json(), "alt")["text/html"]
    library = f"<script>{get_plotlyjs()}</script>"
    path = tmp_path / "page.html"
    path.write_text(f"<meta charset=utf-8>{library if library_first else ''}{body}{'' if library_first else library}")
    page = chromium.new_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.locator(".labkit-figure .main-svg").first.wait_for()
    assert requests == [path.as_uri()]
    page.close()
