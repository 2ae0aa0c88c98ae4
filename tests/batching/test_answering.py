"""Answers are given while the next batch runs, in order, and a slow receiver holds the batches up."""

import threading
import time
from threading import Event

import pytest

from labkit.batching import Batcher
from labkit.batching.answering import Answering
from labkit.errors import EngineClosed

PATIENCE_S = 20.0
# Longer than it takes to hand answers over, so that this is worth while.
BATCH_S = 0.005


class Slow:
    """A model that takes its time once the test lets it go, and tells of each run."""

    def __init__(self):
        self.go = Event()
        self.began = [Event() for _ in range(20)]
        self.runs = 0

    def __call__(self, rows):
        self.began[self.runs].set()
        self.runs += 1
        self.go.wait(PATIENCE_S)
        time.sleep(BATCH_S)
        return rows


def test_a_callback_may_wait_for_the_next_batch_to_begin():
    model, seen = Slow(), []
    with Batcher(model, max_rows=1) as batcher:
        futures = [batcher.submit(n) for n in range(3)]
        futures[0].add_done_callback(lambda _: seen.append(model.began[1].wait(PATIENCE_S)))
        model.go.set()
        assert [future.result(PATIENCE_S) for future in futures] == [0, 1, 2]
    assert seen == [True]


def test_answers_come_in_the_order_of_the_batches():
    model, order = Slow(), []
    with Batcher(model, max_rows=1) as batcher:
        futures = [batcher.submit(n) for n in range(8)]
        for n, future in enumerate(futures):
            future.add_done_callback(lambda _, n=n: order.append(n))
        model.go.set()
        assert [future.result(PATIENCE_S) for future in futures] == list(range(8))
    assert order == list(range(8))


def test_a_callback_that_blocks_lets_one_more_batch_run_and_no_third(until):
    model, let_go, in_callback = Slow(), Event(), Event()

    def block(_):
        in_callback.set()
        let_go.wait(PATIENCE_S)

    with Batcher(model, max_rows=1) as batcher:
        futures = [batcher.submit(n) for n in range(6)]
        futures[0].add_done_callback(block)
        model.go.set()
        assert in_callback.wait(PATIENCE_S)
        until(lambda: model.runs == 2)
        time.sleep(5 * BATCH_S)
        ran = model.runs
        let_go.set()
        assert [future.result(PATIENCE_S) for future in futures] == list(range(6))
    assert ran == 2


def test_a_batch_whose_answers_are_being_given_still_counts_as_running(until):
    model, let_go = Slow(), Event()
    with Batcher(model, max_rows=1) as batcher:
        futures = [batcher.submit(n) for n in range(2)]
        futures[0].add_done_callback(lambda _: let_go.wait(PATIENCE_S))
        model.go.set()
        until(lambda: model.runs == 2)
        until(lambda: batcher.snapshot().running == 2)
        let_go.set()
    assert batcher.snapshot().running == 0


def test_close_waits_for_the_answers_and_leaves_no_thread():
    model = Slow()
    batcher = Batcher(model, max_rows=1, name="closing")
    futures = [batcher.submit(n) for n in range(4)]
    futures[0].add_done_callback(lambda _: time.sleep(0.05))
    model.go.set()
    batcher.close()
    assert [future.result(0) for future in futures] == [0, 1, 2, 3]
    give_up_s = time.perf_counter() + PATIENCE_S
    while any(thread.name.startswith("closing") for thread in threading.enumerate()):
        assert time.perf_counter() < give_up_s, "a thread stays behind"
        time.sleep(0.001)


def test_close_in_a_hurry_leaves_no_future_unresolved_behind_a_callback_that_blocks(until):
    model, let_go, in_callback = Slow(), Event(), Event()

    def block(_):
        in_callback.set()
        let_go.wait(PATIENCE_S)

    batcher = Batcher(model, max_rows=1)
    futures = [batcher.submit(n) for n in range(5)]
    futures[0].add_done_callback(block)
    model.go.set()
    assert in_callback.wait(PATIENCE_S)
    batcher.close(drain=False)
    assert all(future.done() for future in futures)
    assert isinstance(futures[4].exception(0), EngineClosed)
    let_go.set()


def test_a_closer_among_the_callbacks_does_not_wait_for_itself():
    model = Slow()
    batcher = Batcher(model, max_rows=1)
    futures = [batcher.submit(n) for n in range(3)]
    futures[0].add_done_callback(lambda _: batcher.close())
    model.go.set()
    assert [future.result(PATIENCE_S) for future in futures] == [0, 1, 2]


def test_one_answer_that_raises_does_not_keep_the_next_from_being_given(caplog: pytest.LogCaptureFixture):
    given, answering = Event(), Answering("test")

    def fail():
        raise SystemExit

    answering.hand(fail, 1)
    answering.hand(given.set, 1)
    assert given.wait(PATIENCE_S)
    answering.stop()
    assert "were not given" in caplog.text
