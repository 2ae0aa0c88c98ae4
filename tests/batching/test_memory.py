"""What stays alive: nothing that nobody holds."""

import gc
import weakref
from functools import partial
from pathlib import Path
from threading import Event

import pytest
import torch

import labkit.batching.batcher as module
from labkit.batching import Batcher
from labkit.errors import DeadlineExceeded, ModelFailed, PrepareFailed
from labkit.records import Recorder


@pytest.fixture(autouse=True)
def _no_collector():
    """Reference counts alone must do: a cycle would keep memory until the collector happens to run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Payload:
    """Something whose life can be watched."""


def watched(value, watch):
    watch.append(weakref.ref(value))
    return value


def gone(watch):
    return [one() for one in watch] == [None] * len(watch)


def test_an_answer_lives_exactly_as_long_as_its_holder_wants(until):
    watch = []
    with Batcher(lambda rows: [watched(torch.zeros(9), watch) for _ in rows]) as batcher:
        future = batcher.submit(1, timeout_s=60)
        future.result(20)
        assert not gone(watch)
        del future
        until(lambda: gone(watch))


def test_neither_an_idle_worker_nor_a_long_deadline_keeps_the_last_answers(until):
    watch = []
    with Batcher(
        lambda rows: [watched(torch.zeros(9), watch) for _ in rows], prepare=lambda n: n, instances=2
    ) as batcher:
        for future in [batcher.submit(n, timeout_s=3600) for n in range(40)]:
            future.result(20)
        del future
        until(lambda: gone(watch))


def test_payload_and_row_end_with_the_batch_not_with_the_future(until):
    watch = []
    payload = watched(Payload(), watch)
    with Batcher(lambda rows: [1] * len(rows), prepare=lambda one: (one, watched(Payload(), watch))) as batcher:
        future = batcher.submit(payload)
        del payload
        assert future.result(20) == 1
        until(lambda: gone(watch))
        assert len(watch) == 2


def test_a_failed_batch_keeps_no_tensor_alive_and_still_says_where_it_failed(until):
    watch = []

    def broken(batch):
        inner = watched(batch * 2, watch)
        watched(batch, watch)
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError(str(inner.shape)) from error

    with Batcher(broken) as batcher:
        future = batcher.submit(torch.zeros(5))
        error = future.exception(20)
        assert isinstance(error, ModelFailed)
        assert "raise ValueError(str(inner.shape)) from error" in error.__cause__.__notes__[0]
        until(lambda: gone(watch))
        dead = weakref.ref(future)
        del future, error
        until(lambda: dead() is None)


def test_failed_preprocessing_keeps_no_payload_alive(until):
    watch = []

    def broken(payload):
        decoded = watched(torch.zeros(5), watch)
        raise ValueError(decoded.shape)

    payload = watched(Payload(), watch)
    with Batcher(list, prepare=broken) as batcher:
        future = batcher.submit(payload)
        del payload
        assert isinstance(future.exception(20), PrepareFailed)
        until(lambda: gone(watch))
        dead = weakref.ref(future)
        del future
        until(lambda: dead() is None)


def test_a_withdrawn_payload_is_let_go_at_once_wherever_it_waits(gate, until):
    begun, go_on, watch = Event(), Event(), []

    def prepare(payload):
        if payload == "slow":
            begun.set()
            assert go_on.wait(20)
        return payload

    with Batcher(gate, prepare=prepare) as batcher:
        batcher.submit("slow")
        assert begun.wait(20)
        behind = [batcher.submit(watched(Payload(), watch)) for _ in range(50)]
        assert all(future.cancel() for future in behind)
        until(lambda: gone(watch))
        go_on.set()
        gate.wait_begun()
        queued = [batcher.submit(watched(Payload(), watch)) for _ in range(50)]
        until(lambda: batcher._dispatcher.queued_rows == 50)
        assert all(future.cancel() for future in queued)
        until(lambda: gone(watch))
        gate.open()


def test_an_expired_payload_is_let_go_although_a_batch_runs(gate, until):
    watch = []
    with Batcher(gate) as batcher:
        batcher.submit("running")
        gate.wait_begun()
        future = batcher.submit(watched(Payload(), watch), timeout_s=0.01)
        with pytest.raises(DeadlineExceeded):
            future.result(20)
        until(lambda: gone(watch))
        gate.open()


def test_withdrawn_items_do_not_pile_up_behind_a_slow_one(gate):
    begun, go_on = Event(), Event()

    def prepare(payload):
        begun.set()
        assert go_on.wait(20)
        return payload

    gate.open()
    with Batcher(gate, prepare=prepare) as batcher:
        batcher.submit("slow")
        assert begun.wait(20)
        for n in range(6000):
            batcher.submit(n, timeout_s=3600).cancel()
        assert len(batcher._stage._waiting) <= 2048
        assert len(batcher._deadlines._due) <= 2048
        assert len(batcher._ledger) == 1
        go_on.set()


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_memory_does_not_grow_with_the_number_of_requests(monkeypatch):
    """The records are bounded by design, so they are kept short here to see everything else."""
    monkeypatch.setattr(module, "Recorder", partial(Recorder, capacity=1000))
    with Batcher(lambda rows: rows, timeout_s=3600) as batcher:

        def send(count):
            for _ in range(count // 500):
                for future in [batcher.submit(n) for n in range(500)]:
                    future.result(20)

        send(20_000)
        before = resident_bytes()
        send(30_000)
        grown_per_10k = (resident_bytes() - before) / 3
        assert grown_per_10k < 2**20
        assert len(batcher._ledger) == 0
        assert batcher._dispatcher._queue._buckets == {}
        assert len(batcher._deadlines._due) <= 2048
        assert batcher.snapshot().ok == 50_000


def test_a_closed_batcher_can_be_collected(until):
    watch = []
    model = watched(torch.nn.Linear(2, 2), watch)
    batcher = Batcher(model, prepare=lambda payload: payload)
    batcher.submit(torch.zeros(2), timeout_s=60).result(20)
    batcher.close()
    del batcher, model

    def collected():
        gc.collect()
        return gone(watch)

    until(collected)


def test_ever_new_shapes_are_forgotten():
    with Batcher(lambda batch: batch) as batcher:
        for n in range(1, 400):
            assert batcher.submit(torch.zeros(n)).result(20).shape == (n,)
        assert batcher._dispatcher._queue._buckets == {}
        assert len(batcher._dispatcher.learned._lessons) <= 256
