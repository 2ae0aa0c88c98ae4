"""Workers that die and are replaced."""

from __future__ import annotations

from itertools import count
from threading import Event, current_thread
from types import SimpleNamespace

from labkit.batching import worker as module
from labkit.batching.worker import Worker
from labkit.devices import start_computing


def test_the_youngest_of_several_threads_is_joined_though_an_older_one_is_still_starting_another(monkeypatch):
    third_is_up, may_end, threads, starts = Event(), Event(), [], count(1)

    def start_slowly(target, name):
        number = next(starts)
        thread = start_computing(target, name)
        if number == 2:
            assert third_is_up.wait(10)
        return thread

    def next_batch(worker):
        threads.append(current_thread())
        if len(threads) < 3:
            raise SystemExit("gone")
        third_is_up.set()
        may_end.wait(10)

    monkeypatch.setattr(module, "start_computing", start_slowly)
    runner = SimpleNamespace(device="cpu")
    worker = Worker(0, runner, next_batch, lambda *_: None, lambda worker, error: worker.start(), "test")
    worker.start()
    assert third_is_up.wait(10)
    threads[0].join(10)
    worker.join(0.05)
    assert threads[2].is_alive()
    may_end.set()
    worker.join(10)
    assert not threads[2].is_alive()
