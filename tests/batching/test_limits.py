"""Limits at the border, and the admission's books."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching import Limits
from labkit.batching.limits import Admission
from labkit.errors import QueueFull, SettingError


@pytest.mark.parametrize(
    "bad",
    [
        {"max_rows": 0},
        {"max_rows": 2.5},
        {"max_queue": 0},
        {"max_cost": 0},
        {"max_cost": math.nan},
        {"max_queue_bytes": -1},
        {"timeout_s": 0},
        {"ageing_s": -1},
        {"ageing_s": math.nan},
        {"ageing_s": math.inf},
        {"sizes": (4, 1)},
        {"sizes": (0, 1)},
        {"sizes": (4, 4)},
    ],
    ids=str,
)
def test_a_value_outside_its_limits_is_refused_by_name(bad):
    with pytest.raises(SettingError, match=f"{next(iter(bad))} is "):
        Limits(**bad)


@given(st.sets(st.integers(1, 64)).map(sorted).map(tuple), st.integers(1, 64), st.integers(1, 64))
def test_a_batch_is_padded_to_the_smallest_size_that_carries_it(sizes, max_rows, rows):
    limits = Limits(max_rows=max_rows, sizes=sizes)
    assert limits.cap_rows == (min(max_rows, max(sizes)) if sizes else max_rows)
    if rows <= limits.cap_rows:
        assert limits.size_for(rows) == (min(size for size in sizes if size >= rows) if sizes else rows)


@given(
    st.integers(1, 12),
    st.integers(1, 40),
    st.lists(st.one_of(st.lists(st.integers(0, 20), max_size=5), st.integers(0, 99)), max_size=60),
)
def test_the_bounds_on_requests_and_bytes_are_never_passed_and_never_drift(max_queue, max_bytes, history):
    limits = Limits(max_rows=1, max_queue=max_queue, max_queue_bytes=max_bytes)
    admission, inside = Admission(lambda: 0.5), []
    for step in history:
        if isinstance(step, int):
            if inside:
                admission.leave(1, inside.pop(step % len(inside)))
        else:
            held = sum(inside)
            if len(step) > max_queue or sum(step) > max_bytes:
                with pytest.raises(SettingError, match="never fit"):
                    admission.enter(len(step), sum(step), limits)
            elif len(inside) + len(step) > max_queue or held + sum(step) > max_bytes:
                with pytest.raises(QueueFull, match="500 ms") as told:
                    admission.enter(len(step), sum(step), limits)
                assert told.value.retry_after_s == 0.5
            else:
                admission.enter(len(step), sum(step), limits)
                inside += step
        assert admission.rows == len(inside) <= max_queue
        assert admission.payload_bytes == sum(inside) <= max_bytes
