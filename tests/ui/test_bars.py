import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import SettingError
from labkit.labs import Point
from labkit.ui import Chart, figures
from labkit.ui.bars import Bars
from labkit.ui.bundle import data_table
from labkit.ui.curves import Curves
from labkit.ui.live_chart import LiveChart
from labkit.ui.words import describe

GANTT = Chart("Stages", "time (s)", "stage", series=("stage ?",), bars=True)


def _row(*bars, level=0.0):
    row = Bars()
    for begin, end in bars:
        row.add(begin, level)
        row.add(end, level)
    return row


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 10)), max_size=60), st.integers(1, 9))
def test_the_newest_bars_are_kept_whole_and_in_order(bars, capacity):
    row = Bars(capacity)
    for begin, length in bars:
        row.add(begin, 2.0)
        row.add(begin + length, 2.0)
    curve = row.curve()
    kept = sorted((begin, begin + length) for begin, length in bars[-capacity:])
    assert curve.x.reshape(-1, 2).tolist() == [list(bar) for bar in kept]
    assert set(curve.y) <= {2.0}


def test_half_a_bar_is_not_drawn_and_a_row_that_ends_is_emptied():
    row = _row((0.0, 1.0))
    row.add(2.0, 0.0)
    assert row.curve().x.tolist() == [0.0, 1.0]
    row.add(math.nan, math.nan)
    assert row.curve().x.tolist() == []
    row.add(3.0, 0.0)
    row.add(4.0, 0.0)
    assert row.curve().x.tolist() == [3.0, 4.0]


def test_a_row_without_room_is_refused():
    with pytest.raises(SettingError, match="capacity is 0"):
        Bars(0)


def test_a_labs_points_become_bars_where_a_chart_says_so():
    curves = Curves((GANTT,))
    for x in (0.0, 1.0, 2.0, 3.0, 4.0):
        curves.add(Point("stage 1", x, 1.0))
        curves.add(Point("stage 1 busy", x, 50.0))
    found = curves.snapshot()
    assert found["stage 1"].x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found["stage 1 busy"].x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert curves.newest() == {"stage 1 busy": 50.0}


def test_a_figure_draws_each_bar_a_little_short_with_stage_0_on_top():
    found = {"stage 0": _row((0.0, 1.0), (1.0, 2.0)).curve(), "stage 1": _row((0.5, 1.5), level=1.0).curve()}
    figure = figures.charts((GANTT,), found)
    first, second = figure.data
    assert list(first.x) == [0.0, 0.94, None, 1.0, 1.94, None]
    assert list(second.y) == [1.0, 1.0, None]
    assert first.line.dash == "solid"
    assert list(figure.layout.yaxis.range) == [1.6, -0.6]
    table = data_table(figure.to_plotly_json())
    assert table["text/html"].count("<td>") == 3 * 6


def test_bars_are_told_by_how_much_of_the_time_they_cover():
    said = describe(GANTT, {"stage 0": _row((0.0, 1.0), (2.0, 4.0)).curve()})
    assert said.endswith("stage 0 has 2 bars from 0.00 to 4.00 s, which cover 75 % of that.")
    assert describe(GANTT, {"stage 0": Bars().curve()}).endswith("No points yet.")


def test_the_browser_gets_the_pairs_as_they_are(wire):
    chart = LiveChart([GANTT])
    chart.update({"stage 0": _row((0.0, 1.0)).curve()})
    assert chart.charts[0]["bars"] is True
    assert np.frombuffer(chart.data).tolist() == [0.0, 1.0, 0.0, 0.0]
    assert chart.frame["parts"][0]["now"] == [None]
