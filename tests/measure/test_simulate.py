"""The queue model and the bounds against the published figures for S(b) = 20 + b ms, and against each other."""

import math

import numpy as np
import pytest

from labkit.errors import SettingError
from labkit.measure import LinearCurve, MeasuredCurve, best_batch, inoue_bound, max_rate, saturation_rate, simulate
from labkit.workloads import Constant, Poisson, Replay

CURVE = LinearCurve(base_ms=20.0, row_ms=1.0)


def crowd(rate_per_s, requests=100_000, seed=1):
    return Poisson(rate_per_s).times(requests / rate_per_s, seed)


@pytest.mark.parametrize(
    ("rate", "p50_ms", "p99_ms", "mean_batch"), [(50, 29.3, 44, None), (200, 38.5, 55.3, 5.0), (400, 51, 77, 13.3)]
)
def test_greedy_reproduces_the_published_latencies(rate, p50_ms, p99_ms, mean_batch):
    found = simulate(CURVE, crowd(rate, 200_000), cap=32)
    assert found.percentile_ms(50) == pytest.approx(p50_ms, rel=0.025)
    assert found.percentile_ms(99) == pytest.approx(p99_ms, rel=0.025)
    # The published mean batches come from the fluid limit, which leaves the fluctuations out.
    assert mean_batch is None or found.mean_batch == pytest.approx(mean_batch, rel=0.06)


@pytest.mark.parametrize(
    ("cap", "wait_ms", "rate", "tolerance"),
    [(1, 0, 25, 0.03), (32, 0, 523, 0.03), (32, 5, 523, 0.03), (32, 25, 523, 0.03)],
)
def test_the_highest_rate_with_p99_below_100_ms_is_the_published_one(cap, wait_ms, rate, tolerance):
    seeds = iter(range(100))
    found = max_rate(
        lambda r: simulate(CURVE, crowd(r, 30_000, next(seeds)), cap=cap, wait_ms=wait_ms),
        slo_ms=100.0,
        low=rate / 2,
        high=rate * 2,
        confidence=0.5,
        tolerance=0.01,
        confirm=1,
    )
    assert found.rate_per_s == pytest.approx(rate, rel=tolerance)


@pytest.mark.parametrize(
    ("rate", "published"),
    [(5, 1.000), (20, 1.012), (50, 1.089), (100, 1.017), (200, 1.002), (400, 1.001), (550, 1.002), (800, 1.007)],
)
def test_the_bound_lies_above_the_simulated_mean_by_the_published_ratio(rate, published):
    found = simulate(CURVE, crowd(rate, 200_000, seed=2), cap=None)
    assert inoue_bound(rate, CURVE) / found.mean_ms == pytest.approx(published, abs=0.012)


def test_the_bound_close_to_saturation_is_within_a_tenth():
    found = simulate(CURVE, crowd(950, 400_000, seed=3), cap=None)
    assert 1.0 < inoue_bound(950, CURVE) / found.mean_ms < 1.10


def test_the_bound_is_infinite_from_saturation_and_the_bare_service_time_without_load():
    assert inoue_bound(1_000, CURVE) == math.inf
    assert inoue_bound(1e-6, CURVE) == pytest.approx(CURVE(1))


def test_no_batching_is_the_queue_of_khinchin_and_pollaczek():
    rate, service_s = 30.0, 0.021
    load = rate * service_s
    mean_ms = 1e3 * (service_s + rate * service_s**2 / (2 * (1 - load)))
    assert simulate(CURVE, crowd(rate, 300_000), cap=1).mean_ms == pytest.approx(mean_ms, rel=0.02)


def test_batches_are_formed_when_they_start_and_never_exceed_the_cap():
    found = simulate(CURVE, [0.0, 0.001, 0.002, 0.003, 0.1], cap=2)
    assert found.batch_rows.tolist() == [1, 2, 1, 1]
    np.testing.assert_allclose(found.latencies_ms, [21, 42, 41, 61, 21])


def test_a_wait_is_anchored_at_the_oldest_request_and_ends_when_the_batch_is_full():
    found = simulate(CURVE, [0.0, 0.004, 0.100, 0.101, 0.102], cap=3, wait_ms=5.0)
    assert found.batch_rows.tolist() == [2, 3]
    np.testing.assert_allclose(found.latencies_ms, [27, 23, 25, 24, 23])


def test_an_overdue_wait_does_not_hold_up_a_free_server():
    found = simulate(LinearCurve(20.0, 0.0), [0.0, 0.001], cap=8, wait_ms=0.5)
    np.testing.assert_allclose(found.latencies_ms, [20.5, 39.5])


def test_the_model_agrees_with_a_brute_force_walk_in_small_steps():
    at_ms = np.round(crowd(300, 200, seed=9) * 1e3)
    cap, waiting, batches, free, latencies = 4, [], [], 0, {}
    arriving = list(enumerate(at_ms))
    for now in range(int(at_ms[-1]) + 2_000):
        while arriving and arriving[0][1] <= now:
            waiting.append(arriving.pop(0))
        if waiting and now >= free:
            batch, waiting = waiting[:cap], waiting[cap:]
            free = now + int(CURVE(len(batch)))
            batches.append(len(batch))
            latencies |= {index: free - at for index, at in batch}
    found = simulate(CURVE, at_ms / 1e3, cap=cap)
    assert found.batch_rows.tolist() == batches
    np.testing.assert_allclose(found.latencies_ms, [latencies[index] for index in range(at_ms.size)], atol=1e-6)


def test_any_arrival_times_can_be_served():
    steady = simulate(CURVE, Constant(10).times(10), cap=32)
    assert set(steady.latencies_ms.round(6)) == {21.0}
    assert steady.busy_share == pytest.approx(0.021 * 100 / (9.9 + 0.021))
    assert simulate(CURVE, Replay((0.0, 0.0, 0.0)).times(1), cap=32).batch_rows.tolist() == [3]


def test_the_model_says_that_it_is_one():
    assert simulate(CURVE, [0.0]).number_class == "modelled"


def test_saturation_and_the_best_batch_of_the_published_curve():
    assert saturation_rate(CURVE, cap=32) == pytest.approx(32_000 / 52)
    assert saturation_rate(CURVE, cap=32) / saturation_rate(CURVE, cap=1) == pytest.approx(12.9, abs=0.05)
    assert best_batch(100.0, CURVE, cap=64) == 30
    assert best_batch(41.0, CURVE, cap=64) == 0


def test_saturation_of_a_curve_with_a_step_is_not_at_the_cap():
    stepped = MeasuredCurve((1, 16, 17, 32), (10.0, 12.0, 40.0, 41.0))
    assert saturation_rate(stepped, cap=20) == pytest.approx(16_000 / 12)


def test_a_measured_curve_passes_through_its_points_and_goes_on_straight():
    curve = MeasuredCurve((1, 2, 4), (10.0, 12.0, 20.0))
    assert [curve(rows) for rows in (1, 2, 3, 4, 6)] == [10.0, 12.0, 16.0, 20.0, 28.0]


def test_a_fit_recovers_the_line_and_refuses_a_single_batch_size():
    rng = np.random.default_rng(8)
    rows = np.repeat([1, 2, 4, 8, 16, 32], 20)
    fitted = LinearCurve.fit(rows.tolist(), (20 + rows + rng.normal(0, 0.5, rows.size)).tolist())
    assert (fitted.base_ms, fitted.row_ms) == pytest.approx((20, 1), rel=0.03)
    with pytest.raises(SettingError, match=r"60 batch sizes \(1 different\)"):
        LinearCurve.fit([8] * 60, [28.0] * 60)


@pytest.mark.parametrize("settings", [{"cap": 0}, {"wait_ms": -1}])
def test_settings_outside_their_limits_are_named(settings):
    with pytest.raises(SettingError, match="must be"):
        simulate(CURVE, [0.0], **settings)


def test_unsorted_arrivals_are_refused():
    with pytest.raises(SettingError, match="not sorted"):
        simulate(CURVE, [1.0, 0.0])
