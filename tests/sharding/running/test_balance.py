import itertools

import numpy as np
import pytest

from labkit.errors import SettingError
from labkit.sharding.balance import Balancer, Balancing, Window, best_boundaries
from labkit.sharding.job import Done, Key
from labkit.sharding.layout import Layout
from labkit.sharding.meter import Meter
from labkit.sharding.pace import Pace


def longest(layer_s, factors, cuts):
    return max(factor * sum(layer_s[a:b]) for factor, (a, b) in zip(factors, itertools.pairwise(cuts), strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_the_best_boundaries_are_those_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    layers = int(rng.integers(1, 9))
    stages = int(rng.integers(1, layers + 1))
    layer_s, factors = rng.uniform(0.1, 3, layers), rng.uniform(0.3, 3, stages)
    every = ((0, *inner, layers) for inner in itertools.combinations(range(1, layers), stages - 1))
    expected = min(longest(layer_s, factors, cuts) for cuts in every)
    found = best_boundaries(layer_s, factors)
    assert len(found) == stages + 1
    assert all(first < last for first, last in itertools.pairwise(found))
    assert longest(layer_s, factors, found) == pytest.approx(expected)


def test_fewer_layers_than_stages_are_refused():
    with pytest.raises(SettingError, match="cannot fill"):
        best_boundaries([1.0], [1, 1])


def windows(balancer, *measured, replicas=(1, 1)):
    return [balancer.observe(Window(layer_s, replicas)) for layer_s in measured]


EVEN = ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
SLOW = ((1.0, 1.0, 1.0), (2.0, 2.0, 2.0))


def test_one_slow_window_moves_nothing():
    balancer = Balancer(Balancing(), (0, 3, 6), [0] * 6)
    assert windows(balancer, EVEN, EVEN, SLOW, EVEN, EVEN, SLOW, EVEN) == [None] * 7


def test_a_gain_that_does_not_pay_for_the_move_moves_nothing():
    balancer = Balancer(Balancing(horizon_s=1.0), (0, 3, 6), [10**10] * 6)
    assert windows(balancer, EVEN, *[SLOW] * 20) == [None] * 21


def test_after_a_move_there_is_a_cooldown():
    balancer = Balancer(Balancing(cooldown=4), (0, 3, 6), [0] * 6)
    answers = windows(balancer, EVEN, *[SLOW] * 8)
    (moved,) = [answer for answer in answers if answer][:1]
    assert moved == (0, 4, 6)
    balancer.adopt(moved)
    slower = ((1.0,) * 4, (9.0, 9.0))
    assert windows(balancer, *[slower] * 3) == [None] * 3


def test_a_layer_that_leaves_a_slow_device_is_expected_to_be_fast_again():
    balancer = Balancer(Balancing(), (0, 3, 6), [0] * 6)
    windows(balancer, EVEN, *[SLOW] * 20)
    balancer.adopt((0, 4, 6))
    assert balancer.layer_s() == pytest.approx((1, 1, 1, 1, 2, 2), rel=0.01)


def test_a_second_replica_counts_as_a_faster_stage():
    balancer = Balancer(Balancing(), (0, 3, 6), [0] * 6)
    answers = windows(balancer, *[EVEN] * 6, replicas=(1, 2))
    assert (0, 2, 6) in answers


def test_times_of_a_whole_stage_are_spread_over_its_layers():
    balancer = Balancer(Balancing(), (0, 2, 4), [0] * 4)
    windows(balancer, ((2.0,), (4.0,)))
    assert balancer.layer_s() == pytest.approx((1, 1, 2, 2))


@pytest.mark.parametrize(
    "settings", [{"gain": 0}, {"windows": 0}, {"cooldown": -1}, {"horizon_s": 0}, {"window_jobs": 0}, {"weight": 2}]
)
def test_settings_outside_their_limits_are_refused(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        Balancing(**settings)


def test_a_job_that_was_preempted_does_not_count():
    meter = Meter(Layout((0, 1), ((0,),)))
    for seconds in [1.0] * 15 + [100.0]:
        meter.add(0, (seconds,), 0.0, seconds)
    assert not meter.is_full(17)
    assert meter.is_full(16)
    assert meter.window((1,)).layer_s == ((1.0,),)
    assert not meter.is_full(1)


def test_a_device_that_does_every_second_job_twice_counts_as_one_and_a_half():
    meter = Meter(Layout((0, 1), ((0,),)))
    for seconds in [1.0, 2.0] * 8:
        meter.add(0, (seconds,), 0.0, seconds)
    assert meter.window((1,)).layer_s == ((1.5,),)


class Landed:
    def __init__(self, stage, first, last):
        self.key, self.first, self.last = Key(0, 0, stage, 0), first, last


def test_steps_of_an_old_layout_are_not_measured():
    pace = Pace(Layout((0, 2, 4), ((0,), (1,))), [0] * 4, None)
    for flight in (Landed(0, 0, 3), Landed(2, 2, 4), Landed(1, 3, 4)):
        pace.add(flight, Done(flight.key, 0, 0.0, 1.0, (1.0,), 0.0))
    assert [pace.meter.step_s(stage) for stage in (0, 1)] == [0, 0]
    pace.add(Landed(1, 2, 4), Done(Key(0, 0, 1, 0), 0, 0.0, 1.0, (0.5, 0.5), 0.0))
    assert pace.meter.step_s(1) == 1.0
