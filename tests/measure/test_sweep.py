"""The search for the highest rate against systems whose limit is known."""

from dataclasses import dataclass

import numpy as np
import pytest

from labkit.errors import MeasureError, SettingError
from labkit.measure import geometric_rates, max_rate, summarise
from labkit.records import RequestRecord


@dataclass(frozen=True)
class Verdict:
    passes: bool

    def meets(self, slo_ms, level=99.0, confidence=0.99):
        return self.passes


def system(limit, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return lambda rate: Verdict(rate * float(np.exp(rng.normal(0, noise))) <= limit)


@pytest.mark.parametrize("limit", [11.0, 140.0, 523.0, 999.0])
def test_an_exact_system_is_found_to_the_tolerance_and_never_overstated(limit):
    found = max_rate(system(limit), 100, low=10, high=1_000, tolerance=0.02)
    assert limit / 1.02 <= found.rate_per_s <= limit
    assert found.limited


def test_the_search_climbs_bisects_and_confirms():
    found = max_rate(system(100), 100, low=20, high=1_000, growth=2.0, tolerance=0.1)
    search = [point for point in found.points if not point.confirming]
    assert [point.rate_per_s for point in search[:4]] == [20, 40, 80, 160]
    assert [point.meets for point in search[:4]] == [True, True, True, False]
    assert [(p.rate_per_s, p.meets) for p in found.points if p.confirming] == [(found.rate_per_s, True)] * 3


def test_a_noisy_system_is_found_near_its_limit():
    rates = [max_rate(system(500, 0.02, seed), 100, low=50, high=2_000).rate_per_s for seed in range(40)]
    assert 0.90 < np.median(rates) / 500 < 1.0
    assert max(rates) < 500 * 1.04


def test_a_lucky_pass_falls_back_when_it_is_not_confirmed():
    verdicts = iter([True, True, False, True, False, True, True, True, True])
    asked = []

    def measure(rate):
        asked.append(rate)
        return Verdict(next(verdicts))

    found = max_rate(measure, 100, low=100, high=400, growth=2.0, tolerance=0.45)
    # 100, 200 pass, 400 fails; 283 passes once; it fails its first confirmation; one step lower passes three times.
    assert asked[3] == pytest.approx(282.84, abs=0.01)
    assert found.rate_per_s == pytest.approx(282.84 / 1.45, abs=0.01)
    assert asked[5:] == [found.rate_per_s] * 3


def test_a_system_that_fails_at_the_lowest_rate_has_no_rate():
    found = max_rate(system(5), 100, low=10, high=100)
    assert (found.rate_per_s, found.limited, len(found.points)) == (0.0, True, 1)


def test_a_system_that_holds_the_highest_rate_is_told_as_at_least():
    found = max_rate(system(1e9), 100, low=10, high=95)
    assert (found.rate_per_s, found.limited) == (95, False)
    assert str(found) == "at least 95 requests/s with p99 <= 100 ms"


def test_progress_hears_of_every_measurement():
    heard = []
    found = max_rate(system(50), 100, low=10, high=100, progress=heard.append)
    assert tuple(heard) == found.points


def test_metrics_can_be_searched_with_and_short_runs_are_refused():
    def measure(requests):
        def run(rate):
            late_s = 0.05 if rate <= 80 else 0.5
            rows = [
                RequestRecord(k, k / rate, k / rate, k / rate, k / rate, k / rate + late_s, "ok")
                for k in range(requests)
            ]
            return summarise(rows, window_s=requests / rate, slo_ms=100)

        return run

    assert 80 / 1.03 < max_rate(measure(500), 100, low=10, high=200).rate_per_s <= 80
    with pytest.raises(MeasureError, match="cannot decide p99"):
        max_rate(measure(100), 100, low=10, high=200)


def test_geometric_rates_have_equal_factors_and_exact_ends():
    rates = geometric_rates(10, 1_000, 9)
    assert (rates[0], rates[-1], len(rates)) == (10, 1_000, 9)
    np.testing.assert_allclose(np.diff(np.log(rates)), np.log(100) / 8, rtol=1e-6)


@pytest.mark.parametrize("settings", [{"low": 0, "high": 1}, {"low": 5, "high": 5}, {"growth": 1}, {"tolerance": 0}])
def test_settings_outside_their_limits_are_named(settings):
    with pytest.raises(SettingError):
        max_rate(system(1), 100, **({"low": 1, "high": 10} | settings))
