"""Several rows as one request: one future, answered once, in order."""

from concurrent.futures import Future, wait
from threading import Barrier, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching.future import Cancellable
from labkit.batching.group import Group


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_the_answers_stand_in_order_and_the_first_error_in_time_wins(order, failing):
    rows = [Cancellable() for _ in range(6)]
    group = Group(rows)
    for n in order:
        if rows[n].set_running_or_notify_cancel():
            if n in failing:
                rows[n].set_exception(ValueError(n))
            else:
                rows[n].set_result(n * n)
    if failing:
        first = next(n for n in order if n in failing)
        assert group.exception().args == (first,)
        later = order[order.index(first) + 1 :]
        assert all(rows[n].cancelled() for n in later), "rows behind a failed one are withdrawn"
    else:
        assert group.result() == [n * n for n in range(6)]


def test_no_rows_are_answered_at_once():
    assert Group([]).result(0) == []


def test_cancelling_withdraws_what_waits_and_leaves_what_runs():
    rows = [Cancellable() for _ in range(4)]
    rows[1].set_running_or_notify_cancel()
    group = Group(rows)
    assert group.cancel()
    assert [row.cancelled() for row in rows] == [True, False, True, True]
    rows[1].set_result("too late")
    assert group.cancelled()
    assert wait([group], 5).done == {group}


@pytest.mark.parametrize("kind", [Cancellable, lambda: Group([Cancellable(), Cancellable()])], ids=["row", "group"])
def test_a_cancelled_future_wakes_those_who_wait_for_it(kind):
    future, woken = kind(), []
    thread = Thread(target=lambda: woken.append(wait([future], 10)))
    thread.start()
    assert future.cancel()
    thread.join(10)
    assert woken[0].done == {future}
    assert future.cancel(), "cancelling twice is no error"


def test_many_threads_may_cancel_at_once():
    for _ in range(100):
        rows = [Cancellable() for _ in range(3)]
        group, barrier, answers = Group(rows), Barrier(3), []

        def cancel(group=group, barrier=barrier, answers=answers):
            barrier.wait()
            answers.append(group.cancel())

        threads = [Thread(target=cancel) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [True] * 3
        assert all(row.cancelled() for row in rows)


def test_a_plain_future_shows_why_this_one_is_needed():
    future = Future()
    future.cancel()
    assert wait([future], 0.01).not_done == {future}
