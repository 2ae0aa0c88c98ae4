"""The queue against a list that is sorted anew for every question."""

import math
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.batching.queue import Queue, Times
from labkit.batching.request import State
from labkit.batching.submitted import Submitted

AGEING_S = 4.0


def make(number, arrived_s, *, priority=0, cost=1.0, deadline_s=math.inf, key="a", ageing_s=AGEING_S):
    request = Submitted(lambda _: None)
    request.arrive(number, None, arrived_s, None, deadline_s, priority, ageing_s)
    request.key, request.cost = key, cost
    return request


@dataclass(frozen=True)
class Push:
    arrived_s: int
    priority: int
    cost: float
    deadline_s: float
    key: str


@dataclass(frozen=True)
class Discard:
    which: int


@dataclass(frozen=True)
class PassOver:
    which: int
    count: int


@dataclass(frozen=True)
class Take:
    which: int
    rows: int
    max_cost: float
    now_s: float
    lowest_s: float
    usual_s: float
    timed: bool

    @property
    def times(self):
        if not self.timed:
            return Times()
        return Times(self.now_s, self.now_s + self.lowest_s, self.now_s + self.lowest_s + self.usual_s)


pushes = st.builds(
    Push,
    st.integers(0, 40),
    st.integers(0, 3),
    st.sampled_from([0.5, 1.0, 2.0, 5.0]),
    st.sampled_from([math.inf, math.inf, 10.0, 20.0, 30.0]),
    st.sampled_from("abc"),
)
passes = st.builds(PassOver, st.integers(0, 2), st.integers(1, 5))
takes = st.builds(
    Take,
    st.integers(0, 2),
    st.integers(1, 6),
    st.sampled_from([math.inf, 1.0, 3.0, 6.0]),
    st.sampled_from([0.0, 10.0, 20.0, 35.0]),
    st.sampled_from([0.0, 5.0]),
    st.sampled_from([0.0, 4.0, 15.0]),
    st.booleans(),
)


def in_order(waiting, passed=frozenset()):
    def rank_s(one):
        return one.arrived_s + (one.priority + (one.number in passed)) * AGEING_S

    return sorted(waiting, key=lambda one: (rank_s(one), one.number))


def first_that_fit(requests, step):
    taken, budget = [], step.max_cost
    for one in requests:
        if len(taken) == step.rows or (taken and one.cost > budget):
            break
        taken.append(one)
        budget -= one.cost
    return taken


def expected_take(ordered, step):
    """Brute force of the documented rule: what runs, what is answered as too late; all others go on waiting."""
    hopeless = [one for one in ordered if one.deadline_s < step.times.hopeless_s]
    good = [one for one in ordered if one.deadline_s >= max(step.times.hopeless_s, step.times.doubtful_s)]
    doubtful = [one for one in ordered if one not in hopeless and one not in good]
    if good:
        taken = first_that_fit(good, step)
        # Hopeless requests are noticed on the way to the last one taken, or to the first that does not fit.
        stop = ordered.index(taken[-1]) if len(taken) == step.rows else len(ordered)
        rest = [one for one in good if one not in taken]
        stop = min(stop, ordered.index(rest[0])) if rest and len(taken) < step.rows else stop
        return taken, [one for one in hopeless if ordered.index(one) < stop]
    if doubtful:
        return first_that_fit(doubtful, step), hopeless
    expired = [one for one in hopeless if one.deadline_s <= step.now_s]
    return first_that_fit([one for one in hopeless if one not in expired], step), expired


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(pushes, pushes, st.builds(Discard, st.integers(0, 99)), passes, takes), max_size=60))
def test_any_history_of_pushes_withdrawals_and_batches_agrees_with_a_sorted_list(history):
    queue, waiting, passed = Queue(), [], set()
    for number, step in enumerate(history):
        if isinstance(step, Push):
            request = make(
                number,
                float(step.arrived_s),
                priority=step.priority,
                cost=step.cost,
                deadline_s=step.deadline_s,
                key=step.key,
            )
            queue.push(request)
            waiting.append(request)
        elif isinstance(step, Discard) and waiting:
            request = waiting.pop(step.which % len(waiting))
            queue.discard(request)
            queue.discard(request)
            assert request.state is State.DONE
        elif isinstance(step, Take) and waiting:
            buckets = list(queue.by_urgency())
            bucket = buckets[step.which % len(buckets)]
            mine = in_order([one for one in waiting if one.key == bucket.key], passed)
            taken = queue.take(bucket, step.rows, step.max_cost, step.times if step.timed else None)
            assert taken == expected_take(mine, step)
            assert all(one.state is State.RUNNING for one in taken[0] + taken[1])
            waiting = [one for one in waiting if one not in taken[0] + taken[1]]
        elif isinstance(step, PassOver) and waiting:
            buckets = list(queue.by_urgency())
            bucket = buckets[step.which % len(buckets)]
            mine = in_order([one for one in waiting if one.key == bucket.key], passed)
            bucket.pass_over(step.count, AGEING_S)
            passed |= {one.number for one in mine[: step.count]}
        check(queue, waiting, passed)


def check(queue, waiting, passed):
    assert queue.rows == len(waiting)
    buckets = list(queue.by_urgency())
    heads = [in_order([one for one in waiting if one.key == key], passed)[0] for key in {one.key for one in waiting}]
    assert [bucket.head() for bucket in buckets] == in_order(heads, passed)
    for bucket in buckets:
        mine = in_order([one for one in waiting if one.key == bucket.key], passed)
        assert bucket.arrivals_s() == [one.arrived_s for one in mine]
        assert bucket.rows == len(mine)
        assert math.isclose(bucket.cost, sum(one.cost for one in mine))
        assert bucket.oldest_s() == min(one.arrived_s for one in mine)
        assert bucket.deadline_s() == min(one.deadline_s for one in mine)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 4)), min_size=1, max_size=40), st.integers(1, 8))
def test_nothing_is_overtaken_by_what_came_later_than_its_ageing_allows(arrivals, rows):
    queue = Queue()
    for number, (arrived_s, priority) in enumerate(arrivals):
        queue.push(make(number, float(arrived_s), priority=priority))
    order = []
    while queue.rows:
        order += queue.take(next(queue.by_urgency()), rows)[0]
    for place, one in enumerate(order):
        for later in order[place + 1 :]:
            # `later` was served after `one`: it must not have been due to be served before it.
            assert one.arrived_s - later.arrived_s <= AGEING_S * (later.priority - one.priority)


def test_nobody_is_passed_over_twice_so_the_first_come_first_again_after_their_ageing():
    queue = Queue()
    for number in range(6):
        queue.push(make(number, float(number)))
    bucket = next(queue.by_urgency())
    for _ in range(3):
        bucket.pass_over(2, AGEING_S)
    # First 0 and 1 went behind 3, then 2 and 3 went behind those; in the third turn 0 stays first, and 4 alone goes.
    assert [one.number for one in queue.take(bucket, 6)[0]] == [0, 1, 5, 2, 3, 4]


def test_a_row_dearer_than_the_whole_budget_runs_alone():
    queue = Queue()
    for number, cost in enumerate([9.0, 1.0, 1.0]):
        queue.push(make(number, float(number), cost=cost))
    bucket = next(queue.by_urgency())
    assert [one.number for one in queue.take(bucket, 8, 4.0)[0]] == [0]
    assert [one.number for one in queue.take(bucket, 8, 4.0)[0]] == [1, 2]


def entries(bucket):
    return sum(len(lane.entries) for lane in (*bucket._levels.values(), bucket._deadlines))


def test_withdrawn_requests_do_not_pile_up_in_a_bucket_that_never_empties():
    queue = Queue()
    queue.push(make(0, 0.0, deadline_s=5.0))
    bucket = next(queue.by_urgency())
    for number in range(1, 5000):
        request = make(number, float(number), priority=number % 7, deadline_s=1e6 + number)
        queue.push(request)
        queue.discard(request)
        assert entries(bucket) <= 100
    assert bucket.rows == 1


def test_taking_hopeless_work_over_and_over_leaves_no_copies_behind():
    queue = Queue()
    for number in range(400):
        queue.push(make(number, float(number), deadline_s=1000.0))
    bucket = next(queue.by_urgency())
    for turn in range(300):
        taken, hopeless = queue.take(bucket, 1, times=Times(0.0, 2000.0, 2000.0))
        assert [one.number for one in taken] == [turn]
        assert hopeless == []
        assert entries(bucket) <= 2 * (2 * bucket.rows + 34)


def test_those_who_wait_behind_better_chances_keep_their_place_and_cost_no_second_entry():
    queue = Queue()
    for number in range(300):
        queue.push(make(number, float(number), deadline_s=10.0))
    bucket = next(queue.by_urgency())
    for number in range(300, 3000, 3):
        for good in range(number, number + 3):
            queue.push(make(good, float(good), deadline_s=1000.0))
        taken, hopeless = queue.take(bucket, 3, times=Times(0.0, 1.0, 20.0))
        assert [one.number for one in taken] == list(range(number, number + 3))
        assert hopeless == []
        assert entries(bucket) <= 2 * (2 * bucket.rows + 34)
    assert [one.number for one in queue.take(bucket, 300)[0]] == list(range(300))


def test_a_straggler_finds_its_place_among_those_who_arrived_after_it():
    queue = Queue()
    for number in (5, 1, 4, 0, 3, 2):
        queue.push(make(number, float(number // 2)))
    assert [one.number for one in queue.take(next(queue.by_urgency()), 6)[0]] == list(range(6))


def test_a_stream_of_ever_new_shapes_leaves_no_empty_buckets():
    queue = Queue()
    for number in range(1000):
        queue.push(make(number, float(number), key=number))
        queue.take(next(queue.by_urgency()), 1)
    assert queue._buckets == {}


def test_under_overload_the_doubtful_wait_and_batches_go_to_those_who_can_be_answered():
    """Served strictly in order, every batch is spent on requests that expire while it runs, and goodput collapses."""
    queue = Queue()
    for number in range(4):
        queue.push(make(number, float(number), deadline_s=10.0 + number))
    bucket = next(queue.by_urgency())
    assert [one.number for one in queue.take(bucket, 2, times=Times(0.0, 1.0, 12.0))[0]] == [2, 3]
    assert bucket.rows == 2  # nobody was given up
    assert [one.number for one in queue.take(bucket, 2, times=Times(0.0, 1.0, 12.0))[0]] == [0, 1]
