"""Bounds on S(b): they must hold for every service time that batching can have, after any history."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching.service import ServiceModel

SIZES = st.integers(1, 64)


@st.composite
def service_times(draw):
    """S(1..64) that never falls and whose time per row never rises."""
    seconds = [draw(st.floats(0.001, 1.0))]
    for size in range(1, 64):
        seconds.append(seconds[-1] * draw(st.floats(1.0, (size + 1) / size)))
    return lambda rows: seconds[rows - 1]


@given(service_times(), st.lists(SIZES, max_size=60))
def test_the_bounds_hold_for_every_size_after_any_history(service, history):
    model = ServiceModel()
    for rows in history:
        model.observe(rows, service(rows))
    for rows in range(1, 65):
        assert model.low_s(rows) <= service(rows) * (1 + 1e-9)
        assert model.high_s(rows) >= service(rows) * (1 - 1e-9)


@given(st.lists(st.tuples(SIZES, st.floats(0.0001, 10.0)), max_size=80), SIZES)
def test_after_any_contradictory_history_the_low_bound_is_below_the_high_one(history, rows):
    model = ServiceModel()
    for size, seconds in history:
        model.observe(size, seconds)
    assert 0 <= model.low_s(rows) <= model.high_s(rows)
    at_least = [seconds * max(1.0, rows / size) for size, seconds in history[-32:]]
    assert model.low_s(rows) <= min(at_least, default=math.inf) * (1 + 1e-9), "faster was seen, slower is claimed"


@given(service_times(), SIZES, SIZES)
def test_one_size_says_exactly_what_follows_from_it(service, seen, asked):
    model = ServiceModel()
    for _ in range(5):
        model.observe(seen, service(seen))
    assert model.low_s(asked) == pytest.approx(service(seen) * min(1, asked / seen))
    assert model.high_s(asked) == pytest.approx(service(seen) * max(1, asked / seen))


def test_nothing_is_claimed_while_nothing_is_known():
    model = ServiceModel()
    assert (model.low_s(8), model.high_s(8), model.expected_s(8)) == (0.0, math.inf, 0.0)


def test_the_first_runs_of_a_size_set_no_lower_bound():
    model = ServiceModel()
    model.observe(1, 8.0)
    model.observe(1, 8.0)
    assert model.low_s(1) == 0.0
    model.observe(1, 0.02)
    assert model.low_s(1) == 0.02


def test_a_size_seen_only_while_the_machine_was_busy_does_not_overrule_what_was_measured_since():
    model = ServiceModel()
    for _ in range(3):
        model.observe(7, 7.0)
    assert model.low_s(1) == pytest.approx(1.0)
    model.observe(1, 0.02)
    assert model.low_s(1) == 0.02


def test_only_the_newest_32_of_a_size_count():
    model = ServiceModel()
    for seconds in [0.001] * 10 + [1.0] * 32:
        model.observe(4, seconds)
    assert (model.low_s(4), model.high_s(4), model.expected_s(4)) == (1.0, 1.0, 1.0)


def test_the_high_bound_is_the_ninth_decile():
    model = ServiceModel()
    for n in range(1, 21):
        model.observe(1, float(n))
    assert model.high_s(1) == 18.0
