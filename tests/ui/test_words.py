import numpy as np
import pytest

from labkit.ui import Chart
from labkit.ui.series import Curve
from labkit.ui.words import describe, number


@pytest.mark.parametrize(
    ("value", "said"), [(1e-7, "1e-07"), (0.5, "0.5"), (99.96, "100"), (-1234.4, "-1,234"), (2e6, "2,000,000")]
)
def test_numbers_are_short(value, said):
    assert number(value) == said


def test_an_empty_chart_says_so():
    chart = Chart("Queue", "time (s)", "requests")
    empty = Curve(np.array([]), np.array([]), float("nan"))
    assert describe(chart, {"queue": empty}) == "Queue: requests over time (s). No points yet."
