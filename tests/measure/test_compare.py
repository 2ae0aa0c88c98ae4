"""Paired ratios: order of the runs, the interval's coverage, and the A/A run."""

import math

import numpy as np
import pytest
from scipy import stats

from labkit.errors import MeasureError, SettingError
from labkit.measure import compare, ratio
from labkit.measure.compare import t_quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 6, 7, 12, 31])
def test_students_quantile_equals_scipys(degrees):
    for probability in (0.6, 0.9, 0.975, 0.995):
        assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-9)


def test_runs_are_interleaved_and_a_pair_shares_its_seed():
    calls = []

    def side(name):
        def run(seed):
            calls.append((name, seed))
            return 1.0

        return run

    compare(side("A"), side("B"), pairs=4, seed=10)
    assert "".join(name for name, _ in calls) == "ABBAABBA"
    assert [seed for _, seed in calls] == [10, 10, 11, 11, 12, 12, 13, 13]


def test_a_steady_drift_of_the_machine_does_not_favour_either_side():
    clock = iter(range(100))
    drifting = lambda seed: math.exp(0.05 * next(clock))  # noqa: E731
    assert compare(drifting, drifting, pairs=4).value == pytest.approx(1.0)


def test_an_a_a_run_comes_out_null_as_often_as_its_confidence_says():
    rng = np.random.default_rng(4)
    noisy = lambda seed: float(rng.lognormal(3.0, 0.1))  # noqa: E731
    null = [compare(noisy, noisy, pairs=4).null for _ in range(2_000)]
    assert 0.93 < np.mean(null) < 0.97


def test_a_real_difference_is_found_and_its_size_is_inside_the_interval():
    rng = np.random.default_rng(6)
    found = [
        compare(lambda seed: float(rng.lognormal(3, 0.02)), lambda seed: float(1.2 * rng.lognormal(3, 0.02)), pairs=8)
        for _ in range(300)
    ]
    assert np.mean([result.null for result in found]) < 0.01
    assert 0.91 < np.mean([result.low <= 1.2 <= result.high for result in found]) < 0.99


def test_the_interval_is_scipys_paired_t_interval_on_the_logarithms():
    a, b = [10.0, 11.0, 9.5, 10.2], [12.1, 13.0, 12.0, 12.4]
    found = ratio(a, b)
    reference = stats.ttest_rel(np.log(b), np.log(a)).confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((reference.low, reference.high))
    assert found.value == pytest.approx(stats.gmean(b) / stats.gmean(a))


def test_the_verdict_is_said_in_words():
    assert str(ratio([1.0, 2.0], [1.0, 2.0])) == "B/A = 1.000 (1.000..1.000, 2 pairs): no difference shown"


@pytest.mark.parametrize("pairs", [0, 2, 5])
def test_an_unbalanced_number_of_pairs_is_refused(pairs):
    with pytest.raises(SettingError, match=f"pairs is {pairs}; it must be even and at least 4"):
        compare(lambda seed: 1.0, lambda seed: 1.0, pairs=pairs)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_run_that_measured_no_positive_number_has_no_ratio(value):
    with pytest.raises(MeasureError, match="a ratio needs positive numbers"):
        ratio([1.0, 1.0], [1.0, value])
