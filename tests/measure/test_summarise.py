"""Each metric against a value worked out by hand, and the rules that no request may vanish."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import MeasureError, SettingError, UnknownName
from labkit.measure import DEFINITIONS, Metrics, Percentile, Run, definition, summarise
from labkit.measure.columns import covered_s
from labkit.records import RequestRecord, StepRecord

NAN = math.nan


def answered(number, intended_s, latency_s, wait_s=0.01, **more):
    times = (intended_s, intended_s, intended_s, intended_s + wait_s, intended_s + latency_s)
    return RequestRecord(number, *times, "ok", step=number, **more)


def refused(number, intended_s, outcome="rejected", started_s=NAN):
    return RequestRecord(number, intended_s, intended_s, NAN, started_s, intended_s + 0.001, outcome)


def batch(number, started_s, finished_s, rows, cap=8, **more):
    return StepRecord(
        number, more.pop("stage", "compute"), 0, more.pop("device", "cpu"), started_s, finished_s, rows, cap, **more
    )


REQUESTS = [
    answered(0, 100.0, 0.040, copied_bytes=30),
    answered(1, 100.5, 0.060, wait_s=0.03, copied_bytes=30),
    answered(2, 101.0, 1.500),
    refused(3, 101.5),
    refused(4, 101.6, "expired"),
    refused(5, 101.7, "failed", started_s=101.705),
    refused(6, 101.8, "cancelled", started_s=101.84),
]
STEPS = [
    batch(0, 100.0, 100.4, 4, copied_bytes=40),
    batch(1, 100.5, 101.5, 8, padded_rows=0),
    batch(2, 101.8, 102.2, 2, padded_rows=2),
    batch(3, 101.0, 101.2, 6, outcome="failed"),
    batch(4, 100.0, 100.5, 1, cap=1, stage="prepare"),
]


@pytest.fixture
def metrics():
    return summarise(REQUESTS, STEPS, window_s=2.0, start_s=100.0, slo_ms=50.0, offered=8)


def test_counts_cover_every_offered_request(metrics):
    assert (metrics.ok, metrics.rejected, metrics.expired, metrics.failed, metrics.cancelled) == (3, 1, 1, 1, 1)
    assert (metrics.offered, metrics.lost, metrics.within_slo) == (8, 1, 1)


def test_rates_are_counts_over_the_window(metrics):
    assert (metrics.offered_per_s, metrics.goodput_per_s) == (4.0, 0.5)
    # The third answer came at 102.5 s, after the window: it counts in `ok`, but was not achieved within it.
    assert metrics.achieved_per_s == 1.0


def test_everything_but_a_timely_answer_is_a_miss(metrics):
    assert metrics.attainment == 1 / 8
    assert metrics.shed_rate == 2 / 8


def test_batch_sizes_fill_and_padding(metrics):
    assert metrics.mean_batch == pytest.approx((4 + 8 + 2) / 3)
    assert metrics.mean_batch_by_row == pytest.approx((16 + 64 + 4) / 14)
    assert metrics.fill == pytest.approx(14 / 24)
    assert metrics.padding_waste == pytest.approx(1 - 14 / 16)


def test_padding_is_counted_in_units_where_the_engine_counts_them():
    steps = [batch(0, 0, 1, 2, real_units=30, computed_units=64), batch(1, 1, 2, 2, real_units=50, computed_units=64)]
    assert summarise([], steps, window_s=2.0, start_s=0.0).padding_waste == pytest.approx(1 - 80 / 128)


def test_busy_time_is_a_union_cut_to_the_window(metrics):
    # 100.0-100.4, 100.5-101.5 (the failed step lies inside), 101.8-102.0 of the last one.
    assert metrics.busy_share == pytest.approx((0.4 + 1.0 + 0.2) / 2.0)
    assert metrics.overlap_ratio == pytest.approx((0.4 + 1.0 + 0.2 + 0.2 + 0.5) / 2.0)


def test_busy_share_is_a_mean_over_devices():
    steps = [batch(0, 0, 1, 1, device="cuda:0"), batch(1, 0, 3, 1, device="cuda:1")]
    assert summarise([], steps, window_s=4.0, start_s=0.0).busy_share == pytest.approx((0.25 + 0.75) / 2)


def test_means_of_waits_and_steps(metrics):
    assert metrics.mean_wait_ms == pytest.approx((10 + 30 + 10 + 5 + 40) / 5)
    assert metrics.mean_compute_ms == pytest.approx((400 + 1_000 + 400 + 200) / 4)
    assert metrics.mean_prepare_ms == pytest.approx(500)


def test_copies_and_unwanted_work_are_told_per_executed_request(metrics):
    assert metrics.copied_bytes_per_request == pytest.approx((30 + 30) / 5)  # a batch's bytes are its requests' bytes
    assert metrics.unwanted_share == pytest.approx(1 / 5)


def test_misses_are_infinitely_late_in_percentiles():
    rows = [answered(k, k / 10, 0.02) for k in range(970)] + [refused(k, k / 10) for k in range(970, 990)]
    found = summarise(rows, window_s=100.0, slo_ms=50.0, offered=1_000)
    assert (found.p50.value_ms, found.p95.value_ms) == pytest.approx((20.0, 20.0))
    assert (found.p99.level, found.p99.value_ms) == (99.0, math.inf)


def test_p99_needs_662_requests():
    levels = {n: summarise([answered(k, k, 0.02) for k in range(n)], window_s=1e3).p99.level for n in (661, 662)}
    assert levels == {661: 95.0, 662: 99.0}


@given(
    outcomes=st.lists(st.sampled_from(["ok", "rejected", "expired", "failed", "cancelled"]), max_size=60),
    lost=st.integers(0, 20),
)
def test_no_request_ever_vanishes(outcomes, lost):
    rows = [answered(k, k, 0.02) if o == "ok" else refused(k, k, o) for k, o in enumerate(outcomes)]
    found = summarise(rows, window_s=60.0, start_s=0.0, slo_ms=100.0, offered=len(rows) + lost)
    counted = found.ok + found.rejected + found.expired + found.failed + found.cancelled + found.lost
    assert counted == found.offered == found.p50.samples == len(outcomes) + lost
    assert found.within_slo == outcomes.count("ok")


def test_a_run_brings_its_window_its_slo_and_its_verdict():
    run = Run(tuple(REQUESTS), tuple(STEPS), 2.0, 8, 0.3, "late", start_s=100.0, lost=1, carried=4, slo_ms=50.0)
    found = summarise(run)
    assert (found.slo_ms, found.void, found.lag_p99_ms, found.window_s) == (50.0, "late", 0.3, 2.0)
    assert found.achieved_per_s == (2 + 4) / 2.0
    assert summarise(run, slo_ms=5_000).within_slo == 3


def test_nothing_measured_is_nan_and_not_zero():
    found = summarise([], window_s=1.0)
    for name in (
        "attainment",
        "mean_wait_ms",
        "mean_batch",
        "mean_batch_by_row",
        "fill",
        "padding_waste",
        "busy_share",
    ):
        assert math.isnan(getattr(found, name)), name
    assert (found.offered, found.goodput_per_s) == (0, 0.0)


def test_every_number_has_exactly_one_definition():
    numbers = [f.name for f in fields(Metrics) if f.type in ("int", "float", "Percentile")]
    assert sorted(numbers) == sorted(entry.name for entry in DEFINITIONS)
    assert all(entry.unit and entry.text for entry in DEFINITIONS)
    with pytest.raises(UnknownName, match="Did you mean 'goodput_per_s'"):
        definition("goodput")


def test_meeting_an_slo_is_early_stopping_on_the_misses(metrics):
    steady = replace(metrics, offered=662, within_slo=661)
    assert steady.meets(50.0)
    assert not replace(steady, within_slo=660).meets(50.0)
    with pytest.raises(SettingError, match=r"count against an SLO of 50\.0 ms, not 60 ms"):
        steady.meets(60)


def test_a_sample_too_small_to_decide_says_so_unless_it_has_failed_already(metrics):
    with pytest.raises(MeasureError, match=r"300 requests, 0 of them late, cannot decide p99.*Measure at least 459"):
        replace(metrics, offered=300, within_slo=300).meets(50.0)
    assert not replace(metrics, offered=300, within_slo=200).meets(50.0)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20))
def test_the_union_of_intervals_equals_counting_unit_cells(pairs):
    cells = {cell for start, length in pairs for cell in range(start, start + length)}
    starts = np.array([start for start, _ in pairs], dtype=float)
    ends = np.array([start + length for start, length in pairs], dtype=float)
    assert covered_s(starts, ends) == len(cells)


def test_rows_need_the_length_of_their_window():
    with pytest.raises(SettingError, match="window_s is None"):
        summarise([])


def test_a_metric_of_one_run_is_measured(metrics):
    assert metrics.number_class == "measured"
    assert isinstance(metrics.p99, Percentile)
