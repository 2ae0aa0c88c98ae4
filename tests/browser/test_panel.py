"""Panels and live charts in a real JupyterLab."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_a_panel_runs_follows_its_controls_stops_and_is_restored_after_a_reload(lab_page, write_notebook, screenshots):
    lab = lab_page(write_notebook("live", "from fake_lab import panel\npanel('live').show()"))
    lab.run_all()
    lab.wait_idle()
    page = lab.page
    lab.button("Run").click()
    lab.wait_points(more_than=60)
    before = page.locator(".labkit-picture").first.get_attribute("aria-label")

    rate = page.get_by_label("Arrival rate (requests/s)")
    rate.fill("900")
    rate.press("Enter")
    page.wait_for_function(
        "() => /p99 is 2\\d\\d|p99 is 3\\d\\d/.test(document.querySelector('.labkit-picture').ariaLabel)"
    )
    assert "p99 is" in before
    page.get_by_text("Data as a table").first.click()
    page.locator(".labkit-plot").first.hover(position={"x": 200, "y": 100})
    page.locator(".labkit-panel").screenshot(path=screenshots / "panel_light.png")
    lab.use_theme("JupyterLab Dark", to_look_at=True)
    page.locator(".labkit-panel").screenshot(path=screenshots / "panel_dark.png")
    lab.use_theme("JupyterLab Light")

    lab.button("Stop").click()
    page.get_by_text("Stopped:").wait_for()
    points = lab.points()
    assert points > 60

    lab.reload()
    lab.wait_points(more_than=points - 1)
    assert lab.points() == points
    assert page.get_by_text("Stopped:").is_visible()
    page.locator(".labkit-panel").screenshot(path=screenshots / "panel_restored.png")
    page.get_by_text("Data as a table").first.click()
    assert page.locator(".labkit-table tbody tr").count() == 50
    lab.button("Run").click()
    page.wait_for_function("most => Number(document.querySelector('.labkit-charts').dataset.points) < most", arg=points)
    assert lab.complaints == []


def test_five_panels_run_at_once(lab_page, write_notebook):
    cells = [f"panel('p{index}').show()" for index in range(5)]
    lab = lab_page(write_notebook("five", "from fake_lab import panel", *cells), height=5200)
    lab.run_all()
    lab.wait_idle()
    lab.page.locator(".labkit-panel").nth(4).wait_for()
    for index in range(5):
        lab.button("Run", panel=index).click()
    lab.page.wait_for_function(
        """() => {
          const charts = [...document.querySelectorAll('.labkit-charts')];
          return charts.length === 5 && charts.every((chart) => Number(chart.dataset.points) > 60);
        }"""
    )
    assert lab.complaints == []


def test_three_hundred_updates_are_on_screen_within_a_second_and_a_half_of_the_last(lab_page, write_notebook):
    lab = lab_page(
        write_notebook(
            "storm",
            "import time\n"
            "from labkit.ui import Chart, LiveChart\n"
            "from labkit.ui.series import Curve\n"
            "import numpy as np\n"
            "chart = LiveChart([Chart('Storm', 'time (s)', 'value')])\n"
            "x = np.arange(200.0)\n"
            "chart",
            "for n in range(300):\n"
            "    chart.update({f's{k}': Curve(x, np.sin(x / 20 + n / 10 + k), 0.0) for k in range(4)})\n"
            "print('last', time.time() * 1000)",
        )
    )
    lab.run_all()
    lab.page.wait_for_selector(".labkit-charts[data-revision='300']", timeout=20_000)
    lab.wait_idle()
    last_ms = float(lab.page.locator(".jp-OutputArea-output pre", has_text="last").inner_text().split()[1])
    drawn_ms = float(lab.chart.get_attribute("data-drawn-ms"))
    assert drawn_ms - last_ms < 1500
    assert lab.points() == 800


def test_plotly_4027_charts_fill_the_width_of_the_output_at_first_paint(lab_page, write_notebook):
    lab = lab_page(write_notebook("width", "from fake_lab import panel\npanel('width').show()"))
    lab.run_all()
    lab.page.locator(".labkit-charts canvas").first.wait_for()
    widths = lab.page.evaluate(
        """() => {
          const output = document.querySelector('.labkit-panel').closest('.jp-OutputArea-output').clientWidth;
          const plot = document.querySelector('.labkit-plot').clientWidth;
          const canvas = document.querySelector('.labkit-plot canvas').getBoundingClientRect().width;
          return {output, plot, canvas, charts: document.querySelector('.labkit-charts').clientWidth};
        }"""
    )
    assert widths["charts"] >= 0.9 * widths["output"]
    assert widths["canvas"] >= 0.9 * widths["plot"]


def test_ipywidgets_2612_a_failing_lab_shows_an_alert_and_can_run_again(lab_page, write_notebook, screenshots):
    lab = lab_page(write_notebook("fails", "from fake_lab import panel\npanel('fails', fail=1).show()"))
    lab.run_all()
    lab.wait_idle()
    lab.button("Run").click()
    alert = lab.page.get_by_role("alert").filter(has_text="the device fell off the bus")
    alert.wait_for()
    expect(lab.button("Run")).to_be_enabled()
    lab.page.locator(".labkit-panel").screenshot(path=screenshots / "panel_failed.png")
    rate = lab.page.get_by_label("Arrival rate (requests/s)")
    rate.fill("6000")
    rate.press("Enter")
    lab.page.get_by_role("alert").filter(has_text="Turn it down").wait_for()


def test_every_control_has_an_accessible_name(lab_page, write_notebook):
    lab = lab_page(write_notebook("names", "from fake_lab import panel\npanel('names').show()"))
    lab.run_all()
    lab.page.locator(".labkit-charts canvas").first.wait_for()
    for name in ("Policy", "Arrival rate (requests/s)", "Largest batch (rows)", "p99 goal (SLO) (ms)"):
        assert lab.page.get_by_label(name, exact=True).count() == 1
    assert lab.page.get_by_role("status").filter(has_text="Ready").count() == 1
    assert lab.page.get_by_role("img").filter(has=lab.page.locator("canvas")).count() == 4


def test_charts_say_so_and_turn_grey_when_their_kernel_was_restarted(lab_page, write_notebook, screenshots):
    lab = lab_page(write_notebook("gone", "from fake_lab import panel\npanel('gone').show()"))
    lab.run_all()
    lab.wait_idle()
    lab.button("Run").click()
    lab.wait_points(more_than=30)
    assert not lab.page.locator(".labkit-lost").is_visible()
    lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    lab.page.get_by_text("The kernel behind these charts is gone").wait_for()
    lab.page.locator(".labkit-panel").screenshot(path=screenshots / "panel_gone.png")
