import gc
import gzip
import json
import weakref

import numpy as np
import pytest
from traitlets import TraitError

from labkit.ui import Chart, Level, LiveChart
from labkit.ui.series import Curve
from labkit.ui.view import dispose

LATENCY = Chart("Latency", "time (s)", "latency (ms)", series=("p*",), levels=(Level("SLO", 100.0),))
QUEUE = Chart("Queue", "time (s)", "requests", series=("queue",))


def curve(*y):
    return Curve(np.arange(float(len(y))), np.array(y, dtype=float), now=float(y[-1]))


def test_a_frame_is_one_message_with_one_binary_buffer(wire):
    chart = LiveChart([LATENCY, QUEUE])
    wire.clear()
    sent = chart.update({"p50": curve(1, 2), "queue": curve(7), "p99": curve(3, 4, 5)})
    assert len(wire) == 1
    assert set(wire[0].state) | {"data"} == {"frame", "data"}
    assert sent == 8 * 2 * 6
    numbers = np.frombuffer(chart.data, dtype="<f8").tolist()
    assert numbers == [0, 1, 1, 2, 0, 1, 2, 3, 4, 5, 0, 7]


def test_the_frame_names_series_counts_levels_and_the_picture_in_words(wire):
    chart = LiveChart([LATENCY, QUEUE])
    chart.update({"p50": curve(1, 2), "queue": curve(7)})
    latency, queue = chart.frame["parts"]
    assert (latency["names"], latency["counts"], latency["levels"]) == (["p50"], [2], [["SLO", 100.0]])
    assert (queue["names"], queue["counts"], queue["levels"]) == (["queue"], [1], [])
    assert latency["alt"] == "Latency: latency (ms) over time (s). p50 is 2 ms at 1 s, between 1 and 2. SLO at 100 ms."


def test_a_series_that_is_not_known_now_is_told_as_null_because_json_has_no_nan(wire):
    chart = LiveChart([QUEUE])
    chart.update({"queue": curve(1, 2)._replace(now=float("nan"))})
    assert chart.frame["parts"][0]["now"] == [None]
    json.dumps(wire[-1].state, allow_nan=False)


def test_each_update_has_a_new_revision(wire):
    chart = LiveChart([QUEUE])
    for revision in range(3):
        assert chart.frame["revision"] == revision
        chart.update({})


def test_the_state_that_a_reloaded_page_asks_for_is_whole(wire):
    chart = LiveChart([QUEUE])
    chart.update({"queue": curve(1, 2, 3)})
    state = chart.get_state()
    assert len(state["data"]) == 8 * 2 * state["frame"]["parts"][0]["counts"][0]
    assert {"bundle", "bundle_name", "charts", "pens", "_esm", "_css"} <= set(state)


def test_plotly_5143_a_chart_opens_with_less_than_40_kb(wire):
    LiveChart([LATENCY, QUEUE])
    assert wire.bytes_of("comm_open") < 40_000


def test_anywidget_929_the_code_is_text_and_a_closed_chart_is_freed(wire):
    assert type(LiveChart._esm) is str
    assert type(LiveChart._css) is str
    chart = LiveChart([QUEUE])
    chart.update({"queue": curve(1, 2, 3)})
    gone = weakref.ref(chart)
    dispose(chart)
    del chart
    gc.collect()
    assert gone() is None


def test_everything_the_browser_needs_is_on_board():
    text = gzip.decompress(LiveChart.bundle.default_value).decode()
    assert "leeoniya/uPlot (v1.6.32)" in text
    assert "export function render" in text
    for part in (LiveChart._esm, LiveChart._css, text):
        assert 'import("http' not in part
        assert "//cdn" not in part
        assert "url(" not in part


def test_data_must_be_bytes(wire):
    with pytest.raises(TraitError):
        LiveChart([QUEUE]).data = [1.0, 2.0]
