import json
import re

import pytest

from labkit.labs import Point
from labkit.ui import Chart, Level, figures
from labkit.ui.bundle import PLOTLY_MIME, data_table, figure_bundle
from labkit.ui.curves import Curves
from labkit.ui.theme import PENS

ROWS = [("greedy", 1, 30.0), ("greedy", 2, 41.0), ("wait", 1, 35.0), ("wait", 2, 36.0)]


@pytest.fixture
def shown(monkeypatch):
    bundles = []
    monkeypatch.setattr(figures, "put", lambda bundle, raw: bundles.append(bundle))
    return bundles


def draw(**changes):
    return figures.lines(ROWS, **{"title": "Latency", "x": "rate (1/s)", "y": "p99 (ms)", **changes})


def test_points_and_rows_give_the_same_figure():
    points = [Point(*row) for row in ROWS]
    assert figures.lines(points, title="t", x="x", y="y") == figures.lines(ROWS, title="t", x="x", y="y")


def test_series_differ_in_colour_dash_and_symbol_and_keep_their_order():
    first, second = draw().data
    assert (first.name, list(first.x), list(first.y)) == ("greedy", [1, 2], [30, 41])
    assert (first.line.color, first.line.dash) == ("#0072B2", "solid")
    assert (second.line.color, second.line.dash) == ("#D55E00", "8px,4px")
    assert first.marker.symbol != second.marker.symbol


def test_a_curve_that_turns_back_is_not_sorted():
    figure = figures.lines([("a", 3, 1), ("a", 1, 2), ("a", 2, 3)], title="t", x="x", y="y")
    assert list(figure.data[0].x) == [3, 1, 2]


def test_reference_lines_and_log_scales():
    figure = draw(hlines=[("SLO", 40.0)], vlines=[("bound", 1.5)], log_x=True, log_y=True)
    assert [(shape.y0, shape.x0) for shape in figure.layout.shapes] == [(40.0, 0), (0, 1.5)]
    assert {"SLO", "bound"} <= {note.text for note in figure.layout.annotations}
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")


def test_a_panels_charts_become_one_figure_with_a_legend_each():
    curves = Curves()
    for item in (Point("p99", 0, 1), Point("queue", 0, 2), Point("fill", 0, 3)):
        curves.add(item)
    specs = [
        Chart("Latency", "s", "ms", series=("p99",), levels=(Level("SLO", "imag"),)),
        Chart("Queue", "s", "n", series=("queue",)),
        Chart("Fill", "s", "%", series=("fill",)),
    ]
    figure = figures.charts(specs, curves.snapshot(), 7j)
    assert [(trace.name, trace.legend) for trace in figure.data] == [
        ("p99", "legend"),
        ("queue", "legend2"),
        ("fill", "legend3"),
    ]
    assert figure.layout.shapes[0].y0 == 7.0
    assert figure.layout.meta["alt"].startswith("Latency: ms over s. p99 is 1")


def test_plotly_5056_a_figure_is_small_and_has_no_library_in_it(shown):
    figures.show(draw())
    assert sum(len(json.dumps(bundle)) for bundle in shown) < 12_000
    assert len(json.dumps(shown[0][PLOTLY_MIME]["layout"]["template"])) < 1_000


def test_plotly_3449_the_same_numbers_give_the_same_bytes(shown):
    figures.show(draw())
    figures.show(draw())
    assert json.dumps(shown[:2]) == json.dumps(shown[2:])
    assert "uid" not in json.dumps(shown)


def test_numbers_are_plain_lists_with_six_digits(shown):
    figures.show(figures.lines([("a", 1, 1 / 3)], title="t", x="x", y="y"))
    assert shown[0][PLOTLY_MIME]["data"][0]["y"] == [0.333333]


def test_the_bundle_speaks_to_every_reader(shown):
    figures.show(draw(), alt='Greedy is "faster"')
    figure, table = shown
    assert figure["text/plain"] == 'Greedy is "faster"'
    assert 'role="img" aria-label="Greedy is &quot;faster&quot;"' in figure["text/html"]
    assert "<details" in table["text/html"]
    assert table["text/html"].count("<tr>") == 1 + len(ROWS)
    assert "<th>rate (1/s)</th>" in table["text/html"]
    assert table["text/plain"] == "Data: 4 points in 2 series"


def test_the_html_part_carries_the_figure_and_waits_for_the_library():
    content = {"data": [{"x": [1], "y": [2], "name": "</script>"}], "layout": {}}
    html = figure_bundle(content, "alt")["text/html"]
    text = re.search(r'<script type="application/json">(.*?)</script>', html).group(1)
    assert json.loads(text)["data"] == content["data"]
    assert html.count("</script>") == 2
    assert "window.Plotly" in html
    assert not re.search(r"https?://", html)


def test_the_id_is_the_content():
    first, second, third = (
        re.search(r'id="(labkit-figure-\w+)"', figure_bundle({"data": [], "layout": layout}, "alt")["text/html"]).group(
            1
        )
        for layout in ({}, {}, {"height": 9})
    )
    assert first == second != third


def test_a_long_table_is_thinned():
    long = {"data": [{"name": "a", "x": list(range(1000)), "y": list(range(1000))}], "layout": {}}
    assert data_table(long)["text/html"].count("<tr>") == 101


def test_pens_are_all_different():
    assert len({pen.colour for pen in PENS}) == len({pen.dash for pen in PENS}) == len(PENS)


def test_labels_of_levels_stand_at_their_lines_on_a_logarithmic_axis() -> None:
    """Plotly takes a text's place there as an exponent, so that 100 ms would blow the axis up to 10^100."""
    figure = figures.lines(
        [("p99", 10.0, 20.0), ("p99", 20.0, 200.0)],
        title="Tail",
        x="rate (1/s)",
        y="latency (ms)",
        hlines=[("goal", 100.0)],
        vlines=[("bound", 1000.0)],
        log_x=True,
        log_y=True,
    )
    notes = {note.text: note for note in figure.layout.annotations}
    assert notes["goal"].y == 2.0
    assert notes["bound"].x == 3.0
    assert {100.0} <= {shape.y0 for shape in figure.layout.shapes}


@pytest.mark.parametrize(("x", "far", "step"), [("stages", 3, 1), ("time (s)", 3, None), ("rows", 64, None)])
def test_a_few_things_that_are_counted_have_no_ticks_between_them(x, far, step):
    figure = figures.lines([("rate", 1, 30.0), ("rate", far, 41.0)], title="t", x=x, y="y")
    assert figure.layout.xaxis.dtick == step


def test_a_curve_of_one_point_is_a_mark():
    figure = figures.lines([("all", 1, 3.0), ("all", 2, 4.0), ("best", 2, 4.0)], title="t", x="x", y="y")
    curve, mark = figure.data
    assert mark.marker.size > 2 * curve.marker.size


def test_names_that_need_more_lines_push_the_title_up_and_the_plots_apart():
    few, many = (
        figures.lines(
            [(f"a rather long name, {n}", x, x) for n in range(count) for x in (1, 2)], title="t", x="x", y="y"
        )
        for count in (2, 12)
    )
    head = [next(note for note in figure.layout.annotations if note.text == "<b>t</b>") for figure in (few, many)]
    assert head[1].yshift >= head[0].yshift + 20
    assert many.layout.margin.t - few.layout.margin.t == head[1].yshift - head[0].yshift
    assert many.layout.height - few.layout.height == head[1].yshift - head[0].yshift
