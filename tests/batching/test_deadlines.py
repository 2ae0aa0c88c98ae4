"""The clock of time limits."""

import math
import time
from threading import Event, Lock

from labkit.batching.deadlines import Deadlines
from labkit.batching.request import State
from labkit.batching.submitted import Submitted


def make(number, deadline_s):
    now_s = time.perf_counter()
    request = Submitted(lambda _: None)
    request.arrive(number, None, arrived_s=now_s, intended_s=None, deadline_s=deadline_s, priority=0, ageing_s=1.0)
    return request


class Clock:
    """A `Deadlines` that notes what expired and when."""

    def __init__(self):
        self.expired, self.lock = [], Lock()
        self.deadlines = Deadlines(self.expire, "test")

    def expire(self, request):
        with self.lock:
            self.expired.append((request.number, time.perf_counter() - request.deadline_s))


def test_they_fire_in_order_and_never_early_whatever_the_order_of_watching(until):
    clock, base_s = Clock(), time.perf_counter() + 0.05
    order = [3, 0, 4, 1, 2]
    requests = [make(n, base_s + n * 0.01) for n in order]
    for request in requests:
        clock.deadlines.watch(request)
    until(lambda: len(clock.expired) == 5)
    assert [number for number, _ in clock.expired] == [0, 1, 2, 3, 4]
    assert all(late_s >= 0 for _, late_s in clock.expired)
    clock.deadlines.stop()


def test_they_fire_within_20_ms(best_of, until):
    clock, kept = Clock(), []

    def attempt():
        clock.expired.clear()
        kept[:] = [make(n, time.perf_counter() + 0.01 + n * 0.002) for n in range(10)]
        for request in kept:
            clock.deadlines.watch(request)
        until(lambda: len(clock.expired) == 10)
        return max(late_s for _, late_s in clock.expired) <= 0.020

    best_of(8, attempt)
    clock.deadlines.stop()


def test_what_is_done_or_dropped_does_not_fire(until):
    clock, soon_s = Clock(), time.perf_counter() + 0.03
    done, dropped, last = make(0, soon_s), make(1, soon_s), make(2, soon_s + 0.01)
    for request in (done, dropped, last):
        clock.deadlines.watch(request)
    done.state = State.DONE
    del dropped, request
    until(lambda: clock.expired)
    assert [number for number, _ in clock.expired] == [2]
    clock.deadlines.stop()


def test_a_time_beyond_the_range_of_the_clock_ends_no_thread(until):
    clock = Clock()
    far = [make(0, 1e30), make(1, math.inf)]
    for request in far:
        clock.deadlines.watch(request)
    time.sleep(0.01)
    soon = make(2, time.perf_counter() + 0.01)
    clock.deadlines.watch(soon)
    until(lambda: clock.expired)
    assert [number for number, _ in clock.expired] == [2]
    clock.deadlines.stop()


def test_what_was_answered_is_swept(until):
    clock, far_s = Clock(), time.perf_counter() + 3600
    kept = make(0, far_s)
    clock.deadlines.watch(kept)
    for number in range(1, 5000):
        clock.deadlines.watch(make(number, far_s))
    assert len(clock.deadlines._due) <= 2048
    clock.deadlines.stop()


def test_after_stop_nothing_fires():
    fired = Event()
    deadlines = Deadlines(lambda _: fired.set(), "test")
    kept = [make(0, time.perf_counter() + 0.02), make(1, time.perf_counter() + 0.01)]
    deadlines.watch(kept[0])
    deadlines.stop()
    deadlines.watch(kept[1])
    assert not fired.wait(0.05)
