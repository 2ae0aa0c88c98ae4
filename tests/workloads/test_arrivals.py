"""Arrival processes against scipy's distributions and against their own definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from labkit.errors import SettingError
from labkit.workloads.arrivals import Arrivals, Constant, Gamma, OnOff, Poisson, Replay

PROCESSES = [Constant(50), Poisson(50), Gamma(50, 0.5), Gamma(50, 4), OnOff(100, 1, 1), Replay.of(np.arange(200) / 10)]


def test_poisson_gaps_are_exponential():
    gaps_s = np.diff(Poisson(100).times(100, seed=7))
    assert stats.kstest(gaps_s, stats.expon(scale=0.01).cdf).pvalue > 0.01


def test_poisson_counts_per_second_have_variance_equal_to_their_mean():
    counts = np.histogram(Poisson(100).times(2_000, seed=3), bins=2_000, range=(0, 2_000))[0]
    dispersion = counts.var(ddof=1) / counts.mean()
    low, high = stats.chi2(1_999).ppf([0.001, 0.999]) / 1_999
    assert low < dispersion < high


@pytest.mark.parametrize("cv", [0.25, 1.0, 3.0])
def test_gamma_gaps_have_the_shape_of_their_cv(cv):
    gaps_s = np.diff(Gamma(100, cv).times(300, seed=11))
    gamma = stats.gamma(cv**-2, scale=cv**2 / 100)
    # Gaps below a nanosecond drown in the rounding of the sums, so the law is compared above that.
    at_most = gamma.cdf(1e-9)
    shares = (gamma.cdf(gaps_s[gaps_s > 1e-9]) - at_most) / (1 - at_most)
    assert stats.kstest(shares, "uniform").pvalue > 0.01


def test_gamma_of_cv_one_is_poisson():
    firsts_s = np.array([Gamma(10, 1.0).times(10, seed)[0] for seed in range(2_000)])
    assert stats.kstest(firsts_s, stats.expon(scale=0.1).cdf).pvalue > 0.01


def test_a_bursty_run_holds_no_more_requests_than_its_rate_says():
    # An ordinary renewal start would add (8**2 - 1) / 2 = 31 requests to each run of 200.
    counts = [Gamma(20, 8.0).times(10, seed).size for seed in range(3_000)]
    assert abs(np.mean(counts) - 200) < 4 * np.std(counts) / np.sqrt(3_000)


def test_constant_times_are_exact_multiples():
    assert Constant(10).times(0.3).tolist() == [0.0, 0.1, 0.2]
    assert Constant(3).times(2.0).tolist() == [k / 3 for k in range(6)]


def test_on_off_is_poisson_while_on_and_silent_while_off():
    process = OnOff(rate_per_s=200, on_s=0.5, off_s=1.5)
    at_s = process.times(400, seed=5)
    phase_s = at_s % 2.0
    assert phase_s.max() < 0.5
    assert stats.kstest(phase_s, stats.uniform(0, 0.5).cdf).pvalue > 0.01
    assert abs(at_s.size - 400 * process.mean_rate_per_s) < 4 * np.sqrt(at_s.size)


def test_on_off_without_off_is_poisson():
    assert OnOff(30, 1, 0).times(5, seed=2).tolist() == Poisson(30).times(5, seed=2).tolist()


def test_replay_gives_back_what_it_was_given_up_to_the_end_of_the_run():
    assert Replay((0.0, 0.5, 0.5, 2.0)).times(2.0).tolist() == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_the_same_seed_gives_the_same_times_and_a_longer_run_starts_alike(process):
    assert isinstance(process, Arrivals)
    short, again, long = process.times(4, seed=1), process.times(4, seed=1), process.times(9, seed=1)
    assert short.tolist() == again.tolist() == long[long < 4].tolist()


@pytest.mark.parametrize("process", [Poisson(50), Gamma(50, 2), OnOff(100, 1, 1)], ids=repr)
def test_another_seed_gives_other_times(process):
    assert process.times(4, seed=1).tolist() != process.times(4, seed=2).tolist()


@given(rate=st.floats(0.1, 500), cv=st.floats(0.05, 10), duration=st.floats(0.01, 5), seed=st.integers(0, 2**32))
def test_times_are_sorted_and_inside_the_run(rate, cv, duration, seed):
    for process in (Constant(rate), Poisson(rate), Gamma(rate, cv), OnOff(rate, 0.3, 0.7)):
        at_s = process.times(duration, seed)
        assert np.all(np.diff(at_s) >= 0)
        assert np.all((at_s >= 0) & (at_s < duration))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Poisson(0), "rate_per_s is 0"),
        (lambda: Poisson(float("nan")), "rate_per_s is nan"),
        (lambda: Gamma(5, 0), "cv is 0"),
        (lambda: OnOff(5, 1, -1), "off_s is -1"),
        (lambda: Replay((1.0, 0.5)), "not in order"),
        (lambda: Poisson(5).times(0), "duration_s is 0"),
    ],
)
def test_a_setting_outside_its_limits_is_named(make, said):
    with pytest.raises(SettingError, match=said):
        make()
