"""A tiny engine with a known service curve, and a workload of numbers."""

import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from threading import Condition, Thread

import numpy as np
import pytest

from labkit.engine import Engine, Snapshot
from labkit.errors import EngineClosed, QueueFull
from labkit.records import Recorder, RequestRecord, StepRecord


class TinyServer:
    """One server thread that takes what waits, up to `cap`, and sleeps S(b): a stand-in, for tests only.

    Faults on demand: `lose` names request numbers whose futures are never resolved, `forget` those without a row,
    `submit_s` makes each submit slow, `on_submit` is called with each request's number. A batch waits for `least` rows.
    """

    def __init__(self, base_ms=1.0, row_ms=0.0, cap=32, queue=10_000, least=1, **faults):
        self.records = Recorder()
        self.payloads = []
        self._curve = lambda rows: (base_ms + row_ms * rows) / 1e3
        self._cap, self._queue_limit, self._least = cap, queue, least
        self._lose, self._forget = faults.get("lose", ()), faults.get("forget", ())
        self._submit_s, self._on_submit = faults.get("submit_s", 0.0), faults.get("on_submit", lambda number: None)
        self._queue, self._changed, self._open, self._count = deque(), Condition(), True, 0
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def submit(self, payload, *, intended_s=None, timeout_s=None, priority=0):
        now_s = time.perf_counter()
        with self._changed:
            if not self._open:
                raise EngineClosed("the tiny server is closed", "Make a new one.")
            number, self._count = self._count, self._count + 1
            self.payloads.append(payload)
            intended_s = now_s if intended_s is None else intended_s
            full = len(self._queue) >= self._queue_limit
            if full:
                row = RequestRecord(number, intended_s, now_s, *[float("nan")] * 2, now_s, "rejected")
                self.records.add_requests([row])
            else:
                future = Future()
                self._queue.append((number, intended_s, now_s, future, payload))
                self._changed.notify()
        self._on_submit(number)
        time.sleep(self._submit_s)
        if full:
            raise QueueFull("the tiny queue is full", "Come back.", 0.01)
        return future

    def snapshot(self):
        return Snapshot(open=self._open, queued=len(self._queue), running=0)

    def close(self, *, drain=True, timeout_s=None):
        with self._changed:
            self._open = False
            self._changed.notify()
        self._thread.join()

    def _serve(self):
        step = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._queue) >= self._least or not self._open)
                if not self._queue:
                    return
                queued = len(self._queue)
                batch = [self._queue.popleft() for _ in range(min(self._cap, queued))]
            started_s = time.perf_counter()
            time.sleep(self._curve(len(batch)))
            finished_s = time.perf_counter()
            row = StepRecord(step, "compute", 0, "cpu", started_s, finished_s, len(batch), self._cap)
            self.records.add_steps([row])
            for request in batch:
                self._answer(request, started_s, finished_s, step)
            step += 1

    def _answer(self, request, started_s, finished_s, step):
        number, intended_s, arrived_s, future, payload = request
        if number in self._lose:
            return
        with suppress(Exception):  # a cancelled future
            future.set_result(payload)
        if number not in self._forget:
            times = (intended_s, arrived_s, arrived_s, started_s, finished_s)
            self.records.add_requests([RequestRecord(number, *times, "ok", step=step)])


class Numbers:
    """A workload whose payloads are their own indices."""

    def payload(self, index):
        return index

    def order(self, count, seed):
        return np.random.default_rng(seed).integers(0, 1_000_000, count)


@pytest.fixture
def tiny():
    made = []

    def make(**settings):
        made.append(TinyServer(**settings))
        assert isinstance(made[-1], Engine)
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def numbers():
    return Numbers()
