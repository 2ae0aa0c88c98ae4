"""Early stopping against the published table and scipy's binomial; percentiles by coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labkit.errors import SettingError
from labkit.measure import Percentile, accept, bootstrap, minimum_samples, percentile
from labkit.measure.statistics import highest_level, over_allowed

# Rows: percentile; columns: requests over the limit. MLPerf LoadGen's own 64 and 662 are among them.
OVER = (0, 1, 2, 5, 10)
TABLE = {
    90.0: (44, 64, 81, 127, 197),
    95.0: (90, 130, 165, 259, 398),
    99.0: (459, 662, 838, 1_307, 2_010),
    99.9: (4_603, 6_636, 8_403, 13_105, 20_140),
}


@pytest.mark.parametrize("level", TABLE)
def test_the_minimum_sample_table_holds(level):
    assert tuple(minimum_samples(level, over) for over in OVER) == TABLE[level]


@pytest.mark.parametrize("level", TABLE)
def test_acceptance_turns_exactly_at_the_table(level):
    for over, enough in zip(OVER, TABLE[level], strict=True):
        assert accept(enough, over, level)
        assert not accept(enough - 1, over, level)
        assert not accept(enough, over + 1, level)


@given(samples=st.integers(1, 20_000), level=st.sampled_from([50.0, 90.0, 95.0, 99.0, 99.9]))
def test_the_allowed_number_over_is_the_binomial_quantile(samples, level):
    allowed = over_allowed(samples, level)
    binomial = stats.binom(samples, 1 - level / 100)
    assert allowed == -1 or binomial.cdf(allowed) <= 0.01 * (1 + 1e-9)
    assert binomial.cdf(allowed + 1) > 0.01 * (1 - 1e-9)


def test_a_system_that_just_fails_is_accepted_one_time_in_a_hundred():
    rng = np.random.default_rng(1)
    over = rng.binomial(2_000, 0.01, size=100_000)
    accepted = np.mean(over <= over_allowed(2_000, 99.0))
    assert 0.002 < accepted <= 0.0105


@pytest.mark.parametrize(
    ("samples", "level"), [(661, 95.0), (662, 99.0), (129, 90.0), (63, 75.0), (23, 50.0), (11, 50.0)]
)
def test_a_sample_too_small_for_p99_is_answered_with_the_highest_level_that_it_supports(samples, level):
    found = percentile(np.arange(samples), 99.0)
    assert (found.level, found.samples, found.label) == (level, samples, f"p{level:g}")


def test_ten_samples_support_no_percentile():
    found = percentile(np.arange(10), 99.0)
    assert math.isnan(found.value_ms)
    assert math.isnan(highest_level(10))
    assert str(found) == "no percentile from 10 samples (11 support a median)"


def test_the_conservative_percentile_is_the_highest_latency_that_acceptance_would_pass():
    latencies_ms = np.random.default_rng(5).gamma(2.0, 10.0, 3_000)
    found = percentile(latencies_ms, 99.0)
    assert accept(3_000, int((latencies_ms > found.high_ms).sum()), 99.0)
    assert not accept(3_000, int((latencies_ms >= found.high_ms).sum()), 99.0)


@pytest.mark.parametrize("level", [50.0, 95.0, 99.0])
def test_each_bound_is_wrong_at_most_one_time_in_a_hundred(level):
    rng = np.random.default_rng(int(level))
    truth = -math.log(1 - level / 100)
    found = [percentile(rng.exponential(1.0, 700), level) for _ in range(4_000)]
    for wrong in (np.mean([p.high_ms < truth for p in found]), np.mean([p.low_ms > truth for p in found])):
        assert wrong <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 4_000)
    assert all(p.low_ms <= p.value_ms <= p.high_ms for p in found)


def test_the_value_is_numpys_order_statistic():
    values = np.random.default_rng(2).random(1_234)
    for level in (50.0, 90.0, 95.0, 99.0):
        assert percentile(values, level).value_ms == np.percentile(values, level, method="inverted_cdf")


def test_misses_are_infinitely_late_and_move_the_percentile():
    latencies_ms = np.append(np.full(985, 10.0), np.full(15, math.inf))
    assert percentile(latencies_ms, 99.0).value_ms == math.inf
    assert percentile(latencies_ms, 95.0).value_ms == 10.0


def test_a_bootstrap_interval_of_the_mean_agrees_with_the_normal_one():
    sample = np.random.default_rng(3).normal(50.0, 10.0, 400)
    found = bootstrap(sample, seed=1)
    half = 1.96 * sample.std(ddof=1) / 20
    assert found.value == pytest.approx(sample.mean())
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)
    assert bootstrap(sample, seed=1) == found


def test_a_level_given_as_a_share_of_one_hundred_or_more_is_refused():
    for level in (0, 100, 101):
        with pytest.raises(SettingError, match="level is"):
            percentile([1.0] * 1_000, level)
    with pytest.raises(SettingError, match="confidence is 99"):
        accept(1_000, 0, 99.0, 99)


def test_a_percentile_says_its_interval_and_its_sample():
    assert str(Percentile(52.0, 50.1, 55.25, 99.0, 3_000)) == "p99 52.0 ms (50.1..55.2, n=3000)"
