"""A thousand random schedules of faults: no request is lost, and each is resolved exactly once, with the truth."""

import logging
import random
import threading
import time
from collections import Counter
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread

import pytest
import torch

from labkit.batching import (
    AIMD,
    Batcher,
    Deferral,
    FixedSize,
    Goodput,
    Greedy,
    MaxWait,
    PreferredSizes,
    Run,
    WaitUntil,
    execution,
)
from labkit.errors import (
    DeadlineExceeded,
    EngineClosed,
    ModelFailed,
    OutOfMemory,
    PrepareFailed,
    QueueFull,
    SettingError,
    WorkerDied,
)

SCHEDULES, BLOCKS = 1000, 20
KINDS = ["fine"] * 30 + ["poison", "short", "answer", "unprepared", "exit", "unprepared exit"]


@pytest.fixture(autouse=True)
def _beside_the_next_batch(monkeypatch):
    """Answers are given beside the next batch even if that takes no longer than a storm's slow model."""
    monkeypatch.setattr(execution, "_WORTH_S", 0.0005)


@pytest.fixture(autouse=True)
def _quiet():
    names = ["labkit.batching", "concurrent.futures"]
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    yield
    for name in names:
        logging.getLogger(name).setLevel(logging.NOTSET)


class Faulty:
    """A policy that raises, answers nonsense, or waits a little."""

    def __init__(self, rng):
        self.rng = rng

    def decide(self, view):
        chance = self.rng.random()
        if chance < 0.2:
            raise SystemExit if chance < 0.05 else RuntimeError("a bad policy")
        if chance < 0.4:
            return self.rng.choice([None, Run("all"), Run(-3), WaitUntil(float("nan")), WaitUntil("soon"), 7])
        return Run(view.rows) if chance < 0.9 else WaitUntil(view.now_s + 0.001)

    def observe(self, rows, seconds):
        if self.rng.random() < 0.3:
            raise RuntimeError("a bad observer")


class Numbers:
    """Preprocessing: the payload n becomes the row [n, n] or [n, n, n], in place or not."""

    def __init__(self, kinds):
        self.kinds = kinds

    def _shape(self, n):
        if self.kinds[n] == "unprepared":
            raise ValueError("cannot be prepared")
        if self.kinds[n] == "unprepared exit":
            raise SystemExit
        return (2 + n % 2,)

    def __call__(self, n):
        return torch.full(self._shape(n), float(n))

    def into(self, n, place):
        row = place(self._shape(n), torch.float32)
        row.fill_(n)
        return row


@dataclass
class Storm:
    """One schedule: its batcher, and all that was sent to it."""

    rng: random.Random
    kinds: list[str] = field(default_factory=list)
    executed: set = field(default_factory=set)
    futures: dict = field(default_factory=dict)
    resolved: Counter = field(default_factory=Counter)
    withdrawn: set = field(default_factory=set)
    refused: int = 0
    lock: Lock = field(default_factory=Lock)

    def make(self, number):
        rng = self.rng
        count = rng.randint(8, 40)
        self.kinds = [rng.choice(KINDS) for _ in range(count)]
        self.isolate = rng.random() < 0.85
        self.sizes = rng.choice([(), (), (2, 4), (1, 3, 8)])
        self.fits = rng.choice([1000, 1000, 5, 2]) if not self.sizes else rng.choice([1000, self.sizes[0]])
        self.max_queue = rng.choice([4, 16, 100])
        self.slow_s = rng.choice([0.0, 0.0, 0.001])
        numbers = Numbers(self.kinds)
        self.batcher = Batcher(
            self.model,
            prepare=rng.choice([numbers, numbers.__call__]),
            policy=self.policy(),
            instances=rng.randint(1, 3),
            prepare_threads=rng.randint(1, 2),
            max_rows=rng.randint(1, 9),
            sizes=self.sizes,
            max_queue=self.max_queue,
            ageing_s=rng.choice([0.0, 0.001, 1.0]),
            isolate=self.isolate,
            name=f"storm-{number}",
        )
        self.pools = [self.batcher._intake.pool]

    def policy(self):
        rng = self.rng
        makers = [
            Greedy,
            lambda: MaxWait(1),
            lambda: FixedSize(3, max_wait_ms=2),
            lambda: PreferredSizes((2, 4), wait_ms=1),
            lambda: AIMD(1),
            lambda: Deferral(3, margin_ms=1),
            lambda: Goodput(2),
            lambda: Faulty(random.Random(rng.random())),
        ]
        return rng.choice(makers)()

    def model(self, batch):
        if len(batch) > self.fits:
            raise torch.OutOfMemoryError("out of memory")
        time.sleep(self.slow_s)
        numbers = batch[:, 0].int().tolist()
        with self.lock:
            self.executed.update(numbers)
        kinds = {self.kinds[n] for n in numbers}
        if "exit" in kinds:
            raise SystemExit
        if "poison" in kinds:
            raise ValueError("poison")
        if "short" in kinds:
            return batch[1:]
        if "answer" in kinds:
            pairs = zip(numbers, batch, strict=True)
            return [ValueError("answer") if self.kinds[n] == "answer" else row * 2 for n, row in pairs]
        # An identity model's output is the staging memory itself: the batcher must not hand that out.
        return batch

    def send(self):
        """Submit every number once, with limits, levels and withdrawals as the schedule has them."""
        rng = random.Random(self.rng.random())
        for n in range(len(self.kinds)):
            limit_s = rng.choice([None, None, None, 60.0, 0.002, 0.0002])
            try:
                future = self.batcher.submit(n, timeout_s=limit_s, priority=rng.randint(0, 2))
            except QueueFull:
                self.refused += 1
                time.sleep(0.0005)
                continue
            except EngineClosed:
                return
            self.futures[n] = future
            with suppress(SystemExit):
                future.add_done_callback(lambda _, n=n: self.note(n))
            chance = rng.random()
            if chance < 0.15:
                self.withdraw(n)
            elif chance < 0.3:
                self.withdraw(rng.choice(list(self.futures)))
            elif chance < 0.35:
                time.sleep(0.0003)

    def note(self, n):
        with self.lock:
            self.resolved[n] += 1
        if n % 7 == 0:
            raise SystemExit if n % 2 else ValueError("a callback's own fault")

    def withdraw(self, n):
        future = self.futures[n]
        with suppress(SystemExit):
            future.cancel()
        if future.cancelled():
            self.withdrawn.add(n)

    def run(self):
        rng = self.rng
        sender = Thread(target=self.send)
        sender.start()
        for _ in range(rng.randint(0, 4)):
            time.sleep(rng.random() * 0.002)
            self.batcher.configure(policy=self.policy(), max_rows=rng.randint(1, 9), ageing_s=rng.random())
            self.pools.append(self.batcher._intake.pool)
            self.batcher.snapshot()
        self.drain = rng.random() < 0.6
        self.limit_s = rng.choice([None, None, 0.001])
        if self.drain and rng.random() < 0.5:
            sender.join()
        self.batcher.close(drain=self.drain, timeout_s=self.limit_s)
        self.at_close = [future.done() for future in list(self.futures.values())]
        sender.join()

    def check(self):
        batcher = self.batcher
        assert all(self.at_close), "close left a future unresolved"
        assert not wait(self.futures.values(), 0).not_done
        for n, future in self.futures.items():
            self.check_answer(n, future)
        self.check_records()
        patience_s = time.perf_counter() + 10
        while (used := self.used_bytes()) and time.perf_counter() < patience_s:
            time.sleep(0.001)
        assert used == 0, "a staging slot was lost"
        assert len(batcher._ledger) == 0
        assert (batcher._dispatcher.waiting, batcher._dispatcher.waiting_bytes) == (0, 0)
        assert batcher._dispatcher._queue._buckets == {}

    def used_bytes(self):
        return sum(pool.snapshot().used_bytes for pool in self.pools)

    def check_answer(self, n, future):
        kind = self.kinds[n]
        assert self.resolved[n] == 1
        if n in self.withdrawn:
            assert future.cancelled()
            assert n not in self.executed, "withdrawn work was executed"
            return
        error = future.exception()
        if error is None:
            assert kind == "fine"
            assert future.result().tolist() in ([float(n)] * (2 + n % 2), [2.0 * n] * (2 + n % 2))
        elif isinstance(error, EngineClosed):
            assert not (self.drain and self.limit_s is None), "drained, yet not answered"
        elif isinstance(error, WorkerDied):
            assert "exit" in self.kinds
        elif isinstance(error, ModelFailed):
            assert kind in ("poison", "short") or not self.isolate
        elif isinstance(error, PrepareFailed):
            assert kind in ("unprepared", "unprepared exit")
        elif isinstance(error, OutOfMemory | SettingError):
            raise AssertionError(f"{kind} was answered with {error!r}")
        else:
            assert isinstance(error, DeadlineExceeded) or kind == "answer"

    def check_records(self):
        rows = self.batcher.records.requests()
        assert len({row.request for row in rows}) == len(rows) == len(self.futures) + self.refused
        tally = self.batcher.snapshot()
        counted = Counter(row.outcome for row in rows)
        assert counted == Counter(
            ok=tally.ok,
            failed=tally.failed,
            rejected=tally.rejected,
            expired=tally.expired,
            cancelled=tally.cancelled,
        )
        assert counted["rejected"] == self.refused
        answered = [future for future in self.futures.values() if not future.cancelled()]
        assert counted["ok"] == sum(future.exception() is None for future in answered)
        assert counted["cancelled"] <= len(self.withdrawn)
        steps = {step.step for step in self.batcher.records.steps() if step.stage == "compute"}
        assert all(row.step in steps and row.started_s >= row.ready_s for row in rows if row.outcome == "ok")


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.filterwarnings("ignore:max_queue is")
def test_no_fault_schedule_loses_a_request_or_answers_it_twice(block):
    each = SCHEDULES // BLOCKS
    for seed in range(block * each, (block + 1) * each):
        storm = Storm(random.Random(seed))
        storm.make(seed)
        try:
            storm.run()
            storm.check()
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}: {error}") from error


def test_no_storm_leaves_a_thread_behind(until):
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("storm-")])
