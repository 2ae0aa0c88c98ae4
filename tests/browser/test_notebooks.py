"""The labs as people use them: the real notebooks, real engines, a real browser."""

from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_the_live_batcher_runs_follows_its_controls_and_is_restored_after_a_reload(lab_page, screenshots):
    lab = lab_page(NOTEBOOKS / "11_batching_live.ipynb")
    lab.run_all()
    lab.wait_idle(120)
    assert lab.points() == 0
    lab.button("Run").click()
    lab.wait_points(10, timeout_s=60)
    status = lab.page.locator(".labkit-status").first
    lab.page.get_by_label("Rate (1/s)").fill("30")
    lab.page.get_by_label("Rate (1/s)").press("Enter")
    lab.page.get_by_label("Policy", exact=True).select_option("no batching")
    seen = lab.points()
    lab.wait_points(seen + 150, timeout_s=60)
    lab.chart.scroll_into_view_if_needed()
    lab.page.locator(".labkit-panel").screenshot(path=screenshots / "live_batcher.png")  # the README's picture
    lab.button("Stop").click()
    lab.page.wait_for_function("() => !document.querySelector('.labkit-panel button:disabled[title*=Run]')")
    lab.page.get_by_text("Stopped: ").wait_for()
    shown = lab.points()
    assert shown > 20
    assert "alert" not in (status.get_attribute("class") or "")
    lab.reload()
    lab.wait_points(shown - 1, timeout_s=30)
    assert lab.complaints == []


@pytest.mark.parametrize("name", ["10_batching_curve", "12_batching_faults", "13_batching_memory_and_overlap"])
def test_each_other_panel_runs_and_moves(lab_page, shortened, screenshots, name):
    lab = lab_page(shortened(NOTEBOOKS / f"{name}.ipynb"))
    lab.run_all()
    lab.wait_idle(120)
    lab.button("Run").click()
    lab.wait_points(2, timeout_s=90)
    lab.page.screenshot(path=screenshots / f"{name}.png")
    assert lab.page.locator('[role="alert"]').count() == 0
    assert lab.complaints == []


@pytest.mark.parametrize("name", ["20_sharding_partition", "22_sharding_vs_batching"])
def test_each_other_sharding_panel_runs_and_moves(lab_page, shortened, screenshots, name):
    lab = lab_page(shortened(NOTEBOOKS / f"{name}.ipynb"), height=1800)
    lab.run_all()
    lab.wait_idle(120)
    lab.button("Run").click()
    lab.page.get_by_text("Done: ").wait_for(timeout=150_000)
    lab.page.locator(".labkit-panel").screenshot(path=screenshots / f"{name}.png")
    assert lab.page.locator('[role="alert"]').count() == 0
    assert lab.complaints == []


def test_the_live_pipeline_shows_its_stages_and_survives_what_its_buttons_do(lab_page, screenshots):
    lab = lab_page(NOTEBOOKS / "21_sharding_live.ipynb", height=1800)
    lab.run_all()
    lab.wait_idle(120)
    page, panel = lab.page, lab.page.locator(".labkit-panel")
    kill, slow = lab.button("Kill stage k"), lab.button("Slow down stage k")
    assert kill.is_disabled()
    lab.button("Run").click()
    lab.wait_points(60, timeout_s=90)
    page.wait_for_function("() => /stage 1 has 32 bars/.test(document.querySelector('.labkit-picture').ariaLabel)")
    panel.screenshot(path=screenshots / "live_pipeline.png")

    kill.click()
    page.wait_for_timeout(6000)
    panel.screenshot(path=screenshots / "live_pipeline_killed.png")
    slow.click()
    page.wait_for_timeout(1000)
    page.get_by_label("Stages", exact=True).fill("3")
    page.get_by_label("Stages", exact=True).press("Enter")
    page.wait_for_function(
        "() => /stage 2 has/.test(document.querySelector('.labkit-picture').ariaLabel)", timeout=90_000
    )
    lab.use_theme("JupyterLab Dark", to_look_at=True)
    panel.screenshot(path=screenshots / "live_pipeline_dark.png")
    lab.use_theme("JupyterLab Light")
    lab.button("Stop").click()
    page.get_by_text("Stopped: ").wait_for()
    assert kill.is_disabled()
    # The status line shows a note until the next one comes; the log keeps them.
    told = page.locator(".labkit-log").inner_text()
    assert "0 requests failed" in told
    assert "takes 2 times as long" in told
    assert "3 stages of" in told
    assert page.locator('[role="alert"]').count() == 0
    assert lab.complaints == []
