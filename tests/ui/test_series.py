import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import SettingError
from labkit.ui.series import Series

Values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400)


def filled(values, capacity):
    series = Series(capacity)
    for x, y in enumerate(values):
        series.add(x, y)
    return series


@given(Values, st.sampled_from([8, 12, 40]))
def test_memory_is_bounded_and_extremes_ends_and_order_are_kept(values, capacity):
    curve = filled(values, capacity).curve()
    assert len(curve.x) == len(curve.y) <= capacity
    assert (curve.y.min(), curve.y.max()) == (min(values), max(values))
    assert curve.x[-1] == len(values) - 1
    assert (np.diff(curve.x) > 0).all()
    assert all(values[int(x)] == y for x, y in zip(curve.x, curve.y, strict=True))


def test_points_that_fit_are_kept_as_they_are():
    values = np.random.default_rng(0).normal(size=90)
    curve = filled(values, 100).curve()
    assert curve.y.tolist() == values.tolist()


def test_the_resolution_is_even_over_a_long_run():
    curve = filled(np.random.default_rng(0).normal(size=20_000), 200).curve()
    assert np.diff(curve.x).max() < 20_000 / 200 * 8


def test_values_that_are_not_known_are_left_out_of_the_curve_but_not_of_now():
    series = Series(8)
    for y in (float("nan"), 3.0, float("inf")):
        series.add(0.0, y)
    assert series.curve().y.tolist() == [3.0]
    assert math.isnan(series.now)
    series.add(1.0, 4.0)
    assert series.curve().now == 4.0


def test_an_empty_series_is_an_empty_curve():
    assert Series().curve().x.shape == (0,)


@pytest.mark.parametrize("capacity", [4, 10, 0])
def test_a_capacity_that_cannot_be_halved_is_refused(capacity):
    with pytest.raises(SettingError, match=f"capacity is {capacity}"):
        Series(capacity)
