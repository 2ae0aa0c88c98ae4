"""Late binding with several workers and several buckets: no wake-up is lost, nobody waits past a plan."""

import random
import time
from threading import Thread

import pytest

from labkit.batching import Greedy, Limits, MaxWait, Run, WaitUntil
from labkit.batching.dispatcher import Dispatcher
from labkit.batching.ledger import Ledger
from labkit.batching.request import State
from labkit.batching.submitted import Submitted
from labkit.records import Recorder


class House:
    """A dispatcher with `workers` threads that note when each request was taken."""

    def __init__(self, policy, workers, **limits):
        self.ledger = Ledger(Recorder())
        self.dispatcher = Dispatcher(Limits(**limits), policy, self.ledger)
        self.taken, self.count = {}, 0
        self.threads = [Thread(target=self.work, daemon=True) for _ in range(workers)]
        for thread in self.threads:
            thread.start()

    def work(self):
        while (turn := self.dispatcher.next_turn()) is not None:
            for request in turn.batch:
                self.taken[request.number] = time.perf_counter()
                request.state = State.DONE
            self.ledger.answer(turn.batch, turn.batch)

    def put(self, key="a", **fields):
        self.count += 1
        now_s = time.perf_counter()
        settings = {"deadline_s": now_s + 3600, "priority": 0} | fields
        request = Submitted(lambda _: None)
        request.arrive(self.count, None, arrived_s=now_s, intended_s=None, ageing_s=1.0, **settings)
        request.key = key
        self.dispatcher.admit([request])
        self.dispatcher.push(request)
        return request

    def close(self):
        self.dispatcher.stop()
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def house():
    made = []

    def make(*args, **kwargs):
        made.append(House(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_each_bucket_runs_when_its_own_time_has_come(house, best_of, until, workers):
    """Waits of different lengths in many buckets, pushed in random order: the sleepers' plans must stay up to date."""

    class ByKey:
        """Each bucket's wait comes with its requests: here as their deadline."""

        def decide(self, view):
            return Run(view.rows) if view.now_s >= view.deadline_s - 60 else WaitUntil(view.deadline_s - 60)

    rng = random.Random(workers)

    def attempt():
        one = house(ByKey(), workers)
        due = {}
        for n in range(40):
            at_s = time.perf_counter() + rng.uniform(0.0, 0.08)
            due[one.put(key=n, deadline_s=at_s + 60).number] = at_s
            if rng.random() < 0.3:
                time.sleep(rng.uniform(0, 0.004))
        until(lambda: len(one.taken) == 40)
        late_s = [one.taken[number] - at_s for number, at_s in due.items()]
        assert min(late_s) >= 0
        return max(late_s) < 0.020

    best_of(8, attempt)


@pytest.mark.parametrize("seed", range(6))
def test_no_wake_up_is_lost_however_pushes_withdrawals_and_settings_fall(house, until, seed):
    """Several senders and workers at once; every request is taken or withdrawn, all counters are zero."""
    one = house(MaxWait(2), workers=3, max_rows=4, max_queue=100_000)
    withdrawn = set()

    def send(rng):
        for _ in range(150):
            request = one.put(key=rng.randrange(5), priority=rng.randrange(3))
            chance = rng.random()
            if chance < 0.2 and request.cancel():
                one.dispatcher.withdraw(request)
                one.ledger.withdraw(request)
                withdrawn.add(request.number)
            elif chance < 0.25:
                one.dispatcher.configure(
                    rng.choice([MaxWait(1), MaxWait(3), Greedy()]), {"max_rows": rng.randint(1, 6)}
                )
            elif chance < 0.4:
                time.sleep(rng.random() * 0.002)

    senders = [Thread(target=send, args=(random.Random(10 * seed + n),)) for n in range(3)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    until(lambda: len(one.ledger) == 0)
    assert set(one.taken).isdisjoint(withdrawn)
    assert one.dispatcher.waiting == one.dispatcher.queued_rows == 0
    assert one.dispatcher._queue._buckets == {}


def test_a_bucket_that_waits_for_company_does_not_hold_up_its_neighbours(house, until):
    class Picky:
        def decide(self, view):
            return Run(view.rows) if view.rows >= 2 else WaitUntil(view.now_s + 3600)

    one = house(Picky(), workers=1)
    alone = one.put("alone")
    pair = [one.put("pair"), one.put("pair")]
    until(lambda: len(one.taken) == 2)
    assert set(one.taken) == {request.number for request in pair}
    one.put("alone")
    until(lambda: alone.number in one.taken)


def test_a_wait_until_the_past_is_no_busy_loop(house):
    asked = []

    class Past:
        def decide(self, view):
            asked.append(view.now_s)
            return WaitUntil(view.now_s - 1)

    one = house(Past(), workers=1)
    one.put()
    time.sleep(0.1)
    assert len(asked) < 400


def test_expired_work_is_never_handed_out_and_hopeless_work_makes_room(house):
    one = house(Greedy(), workers=0)
    now_s = time.perf_counter()
    for _ in range(3):
        one.dispatcher.learn("a", 1, 1, 1.0)
    hopeless = one.put(deadline_s=now_s + 0.5)
    expired = one.put(deadline_s=now_s - 0.001)
    turn = one.dispatcher.next_turn()
    assert (turn.batch, turn.hopeless) == ([hopeless], [expired])
    hopeless = one.put(deadline_s=now_s + 0.5)
    feasible = one.put(deadline_s=now_s + 50)
    turn = one.dispatcher.next_turn()
    assert (turn.batch, turn.hopeless) == ([feasible], [hopeless])
    assert one.dispatcher.waiting == 0


def test_what_is_learned_while_others_decide_raises_nowhere(house, until):
    """Service models gain sizes in one thread while policies and refusals read them in others."""
    one = house(MaxWait(0), workers=2, max_queue=10_000)
    stop = []

    def learn():
        rng = random.Random(0)
        while not stop:
            key, size = rng.randrange(300), rng.randint(1, 64)
            one.dispatcher.learn(key, size, size, rng.random() * 1e-6)
            one.dispatcher.out_of_memory(key, size)

    teacher = Thread(target=learn)
    teacher.start()
    for n in range(1500):
        one.put(key=n % 300)
        one.dispatcher.learned.lowered(32)
    until(lambda: len(one.ledger) == 0)
    stop.append(True)
    teacher.join()
    assert len(one.taken) == 1500
