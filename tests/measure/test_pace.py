"""Waiting for a moment: never too early, and at once when told to stop."""

import os
import sys
import threading
import time

import pytest

from labkit.measure import pace


def test_a_wait_never_ends_too_early():
    for wait_s in (0.0, 0.0001, 0.001, 0.03):
        at_s = time.perf_counter() + wait_s
        assert pace.until(at_s, lambda: False)
        assert time.perf_counter() >= at_s


def test_a_wait_ends_when_it_is_told_to_stop():
    asked = []

    def stopped():
        asked.append(True)
        return len(asked) > 2

    assert not pace.until(time.perf_counter() + 3_600, stopped)


def test_the_priority_of_the_thread_is_given_back():
    if sys.platform != "linux":
        pytest.skip("only Linux has priorities per thread")
    thread = threading.get_native_id()
    usual = os.getpriority(os.PRIO_PROCESS, thread)
    with pace.first_in_line():
        assert os.getpriority(os.PRIO_PROCESS, thread) <= usual
    assert os.getpriority(os.PRIO_PROCESS, thread) == usual
