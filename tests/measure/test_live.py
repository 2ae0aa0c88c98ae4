"""The live driver: its schedule with a clock in the test's hand, and the whole with a tiny engine."""

import math
from threading import Event

import numpy as np
import pytest
from scipy import stats

from labkit.errors import EngineClosed, SettingError
from labkit.measure import LiveArrivals, drive_live
from labkit.measure.live import Schedule


def sends(arrivals, until_s, seed=0):
    schedule, at_s, times_s = Schedule(arrivals, seed, now_s=0.0), 0.0, []
    while (at_s := schedule.due_s(at_s)) < until_s:
        schedule.sent(at_s)
        times_s.append(at_s)
    return np.array(times_s)


def test_an_untouched_dial_gives_poisson_arrivals():
    gaps_s = np.diff(sends(LiveArrivals(100), 100))
    assert stats.kstest(gaps_s, stats.expon(scale=0.01).cdf).pvalue > 0.01


def test_the_burstiness_is_the_cv_of_the_gaps():
    gaps_s = np.diff(sends(LiveArrivals(100, cv=3), 2_000))
    assert gaps_s.mean() == pytest.approx(0.01, rel=0.05)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(3, rel=0.05)


def test_a_metronome_has_cv_zero():
    np.testing.assert_allclose(np.diff(sends(LiveArrivals(10, cv=0), 5)), 0.1)


def test_a_higher_rate_shortens_the_wait_that_is_going_on():
    dial = LiveArrivals(0.1, cv=0)
    schedule = Schedule(dial, 0, now_s=0.0)
    assert schedule.due_s(5.0) == 10.0
    dial.set(5.0)
    # Half of the gap was used up at the old rate; the other half passes at the new one.
    assert schedule.due_s(5.0) == pytest.approx(5.1)


def test_rate_zero_pauses_and_the_rest_of_the_gap_is_kept():
    dial = LiveArrivals(1.0, cv=0)
    schedule = Schedule(dial, 0, now_s=0.0)
    assert schedule.due_s(0.25) == 1.0
    dial.set(0)
    assert schedule.due_s(0.25) == math.inf
    dial.set(1.0)
    assert schedule.due_s(100.0) == pytest.approx(100.75)


def test_a_late_loop_catches_up_and_leaves_no_request_out():
    schedule = Schedule(LiveArrivals(10, cv=0), 0, now_s=0.0)
    due_s = []
    while (at_s := schedule.due_s(1.05)) <= 1.05:
        due_s.append(at_s)
        schedule.sent(at_s)
    np.testing.assert_allclose(due_s, np.arange(1, 11) / 10)


def test_the_driver_follows_the_dial_until_it_is_stopped(tiny, numbers):
    stop, dial = Event(), LiveArrivals(200, cv=0)

    def turn(number):
        if number == 9:
            dial.set(2_000)
        if number == 29:
            stop.set()

    server = tiny(on_submit=turn)
    totals = drive_live(server, dial, numbers, stop, seed=1)
    server.close()
    assert (totals.sent, totals.rejected) == (30, 0)
    gaps_s = np.diff(sorted(row.intended_s for row in server.records.requests()))
    np.testing.assert_allclose(gaps_s[:9], 1 / 200)
    np.testing.assert_allclose(gaps_s[10:], 1 / 2_000)
    assert dial.lag_p99_ms >= 0


def test_a_full_queue_is_counted_and_endured(tiny, numbers):
    stop = Event()
    server = tiny(base_ms=200, cap=1, queue=1, on_submit=lambda number: stop.set() if number == 9 else None)
    totals = drive_live(server, LiveArrivals(1_000, cv=0), numbers, stop)
    assert totals.sent == 10
    assert totals.rejected >= 7


def test_an_engine_that_was_closed_ends_the_driver_with_its_error(tiny, numbers):
    server = tiny()
    server.close()
    with pytest.raises(EngineClosed):
        drive_live(server, LiveArrivals(100), numbers, Event())


def test_a_dial_beyond_its_limits_is_refused_and_keeps_its_setting():
    dial = LiveArrivals(10, 2)
    for wrong in ((-1, 1), (1e9, 1), (10, -0.1), (float("nan"), 1)):
        with pytest.raises(SettingError):
            dial.set(*wrong)
    assert dial.setting == (10.0, 2.0)
