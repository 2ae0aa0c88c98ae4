"""Closing: prompt, from anywhere, and no future stays unresolved."""

import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import wait
from threading import Event, Thread

import pytest

from labkit.batching import Batcher, FixedSize, MaxWait
from labkit.errors import DeadlineExceeded, EngineClosed, WorkerDied


def test_draining_answers_what_was_accepted_without_waiting_for_company(gate):
    gate.open()
    batcher = Batcher(gate, policy=FixedSize(32, max_wait_ms=50_000))
    futures = [batcher.submit(n) for n in range(5)]
    batcher.close()
    assert [future.result(0) for future in futures] == [0, 1, 2, 3, 4]
    assert not batcher.snapshot().open


def test_not_draining_answers_what_waits_and_what_runs_at_once(gate):
    batcher = Batcher(gate)
    running = batcher.submit("running")
    gate.wait_begun()
    waiting = [batcher.submit(n) for n in range(5)]
    batcher.close(drain=False)
    for future in [running, *waiting]:
        with pytest.raises(EngineClosed):
            future.result(0)
    gate.open()
    assert gate.batches == [["running"]]


def test_draining_gives_up_when_its_time_is_over(gate):
    batcher = Batcher(gate)
    futures = [batcher.submit("stuck")]
    gate.wait_begun()
    futures.append(batcher.submit("behind"))
    batcher.close(timeout_s=0.02)
    assert all(isinstance(future.exception(0), EngineClosed) for future in futures)
    errors = [future.exception(0) for future in futures]
    assert errors[0] is not errors[1], "an exception that two threads raise mixes their traces"


def test_a_body_that_raises_does_not_wait_for_the_queue(gate):
    futures = []

    def body(batcher):
        futures.append(batcher.submit("stuck"))
        gate.wait_begun()
        raise ValueError("body")

    with pytest.raises(ValueError, match="body"), Batcher(gate) as batcher:
        body(batcher)
    assert isinstance(futures[0].exception(0), EngineClosed)


def test_it_lets_nobody_in_any_more_and_may_be_closed_again():
    batcher = Batcher(list)
    for _ in range(3):
        batcher.close()
        with pytest.raises(EngineClosed):
            batcher.submit(1)
        with pytest.raises(EngineClosed):
            batcher.submit_many([1, 2])


def test_an_impatient_close_overrides_one_that_drains(gate):
    batcher = Batcher(gate)
    future = batcher.submit("stuck")
    gate.wait_begun()
    draining = Thread(target=batcher.close)
    draining.start()
    while batcher.snapshot().open:
        time.sleep(0.001)
    batcher.close(drain=False)
    draining.join(20)
    assert not draining.is_alive()
    assert isinstance(future.exception(0), EngineClosed)


def test_a_policy_set_while_draining_cannot_hold_it_up(gate):
    batcher = Batcher(gate)
    futures = [batcher.submit("first")]
    gate.wait_begun()
    futures.append(batcher.submit("second"))
    draining = Thread(target=batcher.close)
    draining.start()
    while batcher.snapshot().open:
        time.sleep(0.001)
    batcher.configure(policy=MaxWait(50_000))
    gate.open()
    draining.join(20)
    assert [future.result(0) for future in futures] == ["first", "second"]


def test_a_worker_that_dies_while_draining_is_replaced(gate):
    def deadly(rows):
        gate(rows)
        if "deadly" in rows:
            raise SystemExit
        return rows

    batcher = Batcher(deadly, max_rows=1)
    dead = batcher.submit("deadly")
    gate.wait_begun()
    behind = [batcher.submit(n) for n in range(3)]
    draining = Thread(target=batcher.close)
    draining.start()
    while batcher.snapshot().open:
        time.sleep(0.001)
    gate.open()
    draining.join(20)
    assert not draining.is_alive()
    assert isinstance(dead.exception(0), WorkerDied)
    assert [future.result(0) for future in behind] == [0, 1, 2]


@pytest.mark.parametrize("drain", [True, False])
def test_a_callback_may_close_although_its_thread_is_the_only_worker(gate, drain):
    batcher = Batcher(gate, max_rows=1)
    first = batcher.submit("first")
    gate.wait_begun()
    first.add_done_callback(lambda _: batcher.close(drain=drain))
    behind = [batcher.submit(n) for n in range(5)]
    gate.open()
    assert not wait(behind, 20).not_done
    if drain:
        assert [future.result(0) for future in behind] == [0, 1, 2, 3, 4]
    with pytest.raises(EngineClosed):
        batcher.submit("late")


def test_a_callback_of_an_expired_request_may_close(gate):
    batcher = Batcher(gate)
    batcher.submit("running")
    gate.wait_begun()
    expiring = batcher.submit("expiring", timeout_s=0.02)
    expiring.add_done_callback(lambda _: batcher.close(drain=False))
    behind = batcher.submit("behind")
    assert isinstance(behind.exception(20), EngineClosed)
    assert isinstance(expiring.exception(0), DeadlineExceeded)


def test_a_callback_of_a_cancelled_request_may_close():
    batcher = Batcher(list, policy=FixedSize(32, max_wait_ms=50_000))
    futures = [batcher.submit(n) for n in range(3)]
    futures[1].add_done_callback(lambda _: batcher.close())
    assert futures[1].cancel()
    assert [futures[n].result(0) for n in (0, 2)] == [0, 2]
    rows = {row.request: row.outcome for row in batcher.records.requests()}
    assert rows == {0: "ok", 1: "cancelled", 2: "ok"}


def test_close_returns_only_when_an_answer_that_is_on_its_way_has_arrived(gate):
    """The request has left the ledger, but a neighbour's callback holds up the resolving of its future."""
    holding, let_go = Event(), Event()

    def hold(_):
        holding.set()
        assert let_go.wait(20)

    batcher = Batcher(gate)
    batcher.submit("running")
    gate.wait_begun()
    first, second = batcher.submit(1), batcher.submit(2)
    first.add_done_callback(hold)
    second.add_done_callback(lambda _: None)
    gate.open()
    assert holding.wait(20)
    assert not second.done()
    closing = Thread(target=batcher.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive(), "close returned while a future was unresolved"
    let_go.set()
    closing.join(20)
    assert second.result(0) == 2


def test_an_item_in_preprocessing_is_answered_and_its_slot_returns(gate, until):
    begun, go_on = Event(), Event()

    class Slow:
        def __call__(self, n):
            raise AssertionError

        def into(self, n, place):
            import torch

            row = place((2,), torch.float32)
            begun.set()
            assert go_on.wait(20)
            return row.fill_(n)

    batcher = Batcher(gate, prepare=Slow())
    futures = [batcher.submit(n) for n in range(3)]
    assert begun.wait(20)
    batcher.close(drain=False)
    assert all(isinstance(future.exception(0), EngineClosed) for future in futures)
    go_on.set()
    until(lambda: batcher.snapshot().pool.used_bytes == 0)
    assert gate.batches == []


def test_its_threads_end(until):
    batcher = Batcher(list, prepare=lambda n: n, prepare_threads=3, instances=3, name="ending")
    batcher.submit(1, timeout_s=60).result(20)

    def alive():
        return [thread for thread in threading.enumerate() if thread.name.startswith("ending-")]

    assert len(alive()) == 7
    batcher.close()
    until(lambda: not alive())


def test_an_interpreter_with_open_batchers_exits_at_once_and_quietly():
    script = """
    import time
    from labkit.batching import Batcher, FixedSize
    def model(rows):
        return [time.sleep(row) for row in rows]
    idle = Batcher(model)
    idle.submit(0).result(20)
    busy = Batcher(model, prepare=lambda n: n, instances=2)
    busy.submit(30)
    draining = Batcher(model)
    draining.submit(0.1).add_done_callback(lambda _: draining.close())
    waiting = Batcher(model, policy=FixedSize(9, max_wait_ms=50_000))
    waiting.submit(0, timeout_s=60)
    time.sleep(0.1)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
