"""Each policy's documented behaviour as a table of views and decisions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching import (
    AIMD,
    Deferral,
    FixedSize,
    Goodput,
    Greedy,
    MaxWait,
    PreferredSizes,
    Run,
    ServiceModel,
    View,
    WaitUntil,
)
from labkit.errors import SettingError

NOW_S = 1000.0


def service(**seconds_by_size):
    model = ServiceModel()
    for size, seconds in seconds_by_size.items():
        model.observe(int(size[1:]), seconds)
    return model


def view(rows, *, cap=8, age_ms=0.0, full=None, deadline_ms=math.inf, service=None, ages_ms=()):
    return View(
        now_s=NOW_S,
        rows=rows,
        cap=cap,
        full=rows >= cap if full is None else full,
        oldest_s=NOW_S - age_ms / 1000,
        deadline_s=NOW_S + deadline_ms / 1000,
        service=service or ServiceModel(),
        arrivals_s=lambda: [NOW_S - one / 1000 for one in ages_ms or [age_ms] * rows],
    )


def late(*ages_ms, cap=32):
    """A queue of these ages before a service of 20 ms + 1 ms a row."""
    sizes = {f"_{rows}": 0.020 + 0.001 * rows for rows in range(1, 33)}
    return view(len(ages_ms), cap=cap, age_ms=max(ages_ms), service=service(**sizes), ages_ms=ages_ms)


TABLE = [
    (Greedy(), view(1), Run(1)),
    (Greedy(), view(5), Run(5)),
    (Greedy(), view(50), Run(8)),
    (MaxWait(10), view(1), WaitUntil(NOW_S + 0.010)),
    (MaxWait(10), view(3, age_ms=4), WaitUntil(NOW_S + 0.006)),
    (MaxWait(10), view(3, age_ms=10), Run(3)),
    (MaxWait(10), view(3, age_ms=500), Run(3)),
    (MaxWait(10), view(8), Run(8)),
    (MaxWait(10), view(3, full=True), Run(3)),
    (MaxWait(0), view(1), Run(1)),
    (MaxWait(50), view(1, deadline_ms=30, service=service(_1=0.020)), WaitUntil(NOW_S + 0.008)),
    (MaxWait(50), view(2, deadline_ms=41, service=service(_1=0.020)), Run(2)),
    (MaxWait(50), view(1, deadline_ms=30), Run(1)),
    (MaxWait(50), view(1, deadline_ms=900, service=service(_1=0.020)), WaitUntil(NOW_S + 0.050)),
    (FixedSize(4), view(3, deadline_ms=102, service=service(_4=0.030)), WaitUntil(NOW_S + 0.070)),
    (PreferredSizes((4,), wait_ms=50), view(3, deadline_ms=22, service=service(_4=0.030)), Run(3)),
    (FixedSize(4), view(3), WaitUntil(NOW_S + 1.0)),
    (FixedSize(4), view(4), Run(4)),
    (FixedSize(4), view(50), Run(4)),
    (FixedSize(4), view(3, age_ms=1000), Run(3)),
    (FixedSize(100), view(8), Run(8)),
    (FixedSize(100), view(7), WaitUntil(NOW_S + 1.0)),
    (FixedSize(4), view(2, full=True), Run(4)),
    (PreferredSizes((1, 32)), view(32, cap=32), Run(32)),
    (PreferredSizes((1, 32)), view(31, cap=32), Run(1)),
    (PreferredSizes((4, 8)), view(7), Run(4)),
    (PreferredSizes((4, 8)), view(9), Run(8)),
    (PreferredSizes((4, 8), wait_ms=5), view(3), WaitUntil(NOW_S + 0.005)),
    (PreferredSizes((4, 8), wait_ms=5), view(3, age_ms=5), Run(3)),
    (PreferredSizes((16,), wait_ms=5), view(8), Run(8)),
    (Deferral(100, margin_ms=5), view(3), Run(3)),
    (Deferral(100, margin_ms=5), view(1, service=service(_1=0.020)), WaitUntil(NOW_S + 0.075)),
    (Deferral(100, margin_ms=5), view(2, service=service(_1=0.020)), WaitUntil(NOW_S + 0.055)),
    (Deferral(100, margin_ms=5), view(2, age_ms=60, service=service(_1=0.020)), Run(2)),
    (Deferral(100, margin_ms=5), view(8, service=service(_1=0.001)), Run(8)),
    (Deferral(100, margin_ms=5), view(1, deadline_ms=50, service=service(_1=0.020)), WaitUntil(NOW_S + 0.025)),
    (Deferral(100, margin_ms=5), view(1, deadline_ms=10, service=service(_1=0.020)), Run(1)),
    (Goodput(100), view(3), Run(3)),
    (Goodput(100), view(50, age_ms=5000), Run(8)),
    (Goodput(101.5), late(50, 40, 30), Run(3)),
    # One row less in the batch keeps all of it in time.
    (Goodput(101.5), late(77, 70, 60, 50), Run(3)),
    # The first is late already; it fills the room that the others leave.
    (Goodput(101.5), late(90, 60, 50), Run(20, pass_over=1)),
    # The first could be in time alone, but then nobody else would be.
    (Goodput(101.5), late(79, 75, 74, 73), Run(5, pass_over=1)),
    # The caps of a batch and of the queue leave no room that matters: nobody has to stand back.
    (Goodput(101.5), late(77, 10, 10, 10, cap=3), Run(3)),
    # Whoever came first by rank, because it stood back long ago, is no measure for the others.
    (Goodput(101.5), late(1100, 20, 10), Run(32, pass_over=1)),
    # Nobody can be in time: it is greedy.
    (Goodput(101.5), late(500, 400, 90, 85), Run(4)),
]


@pytest.mark.parametrize(("policy", "seen", "decision"), TABLE, ids=lambda value: repr(value)[:60])
def test_the_policy_decides_as_documented(policy, seen, decision):
    decided = policy.decide(seen)
    assert type(decided) is type(decision)
    if isinstance(decision, Run):
        assert decided == decision
    else:
        assert decided.at_s == pytest.approx(decision.at_s, abs=1e-6)


def test_aimd_adds_one_row_while_the_goal_holds_and_drops_a_tenth_when_it_does_not():
    policy = AIMD(slo_ms=50)
    assert policy.decide(view(100, cap=64)) == Run(1)
    for rows in range(1, 20):
        policy.observe(rows, 0.010 + rows * 0.001)
    assert policy.limit == 20
    assert policy.decide(view(100, cap=64)) == Run(20)
    assert policy.decide(view(100, cap=8)) == Run(8)
    policy.observe(20, 0.051)
    assert policy.limit == pytest.approx(18.0)
    policy.observe(3, 0.001)
    assert policy.limit == pytest.approx(18.0), "a small batch says nothing about a large one"
    for _ in range(200):
        policy.observe(1, 9.9)
    assert policy.limit == 1.0


def test_aimd_finds_the_largest_batch_within_its_goal():
    policy = AIMD(slo_ms=40)
    sizes = []
    for _ in range(300):
        rows = policy.decide(view(100, cap=64)).rows
        sizes.append(rows)
        policy.observe(rows, 0.020 + 0.001 * rows)
    assert max(sizes) == 21
    assert min(sizes[100:]) >= 17


@pytest.mark.parametrize(
    "make",
    [
        lambda: MaxWait(-1),
        lambda: MaxWait(math.nan),
        lambda: FixedSize(0),
        lambda: FixedSize(4, max_wait_ms=-5),
        lambda: PreferredSizes(()),
        lambda: PreferredSizes((0, 4)),
        lambda: PreferredSizes((4,), wait_ms=-1),
        lambda: AIMD(0),
        lambda: AIMD(10, backoff=1.0),
        lambda: Deferral(0),
        lambda: Deferral(10, margin_ms=-1),
        lambda: Goodput(0),
        lambda: Goodput(10, margin_ms=-1),
        lambda: Goodput(10, margin_ms=10),
    ],
)
def test_a_senseless_setting_is_refused_when_the_policy_is_made(make):
    with pytest.raises(SettingError):
        make()


@given(
    st.sampled_from([Greedy(), MaxWait(7), FixedSize(5), PreferredSizes((2, 6)), AIMD(30), Deferral(50), Goodput(50)]),
    st.integers(1, 100),
    st.integers(1, 16),
    st.floats(0, 2000),
    st.floats(1, 3000),
    st.floats(0.001, 0.2),
)
def test_every_policy_runs_something_in_the_end_and_never_waits_for_the_past(
    policy, rows, cap, age_ms, deadline_ms, seconds
):
    seen = view(rows, cap=cap, age_ms=age_ms, deadline_ms=deadline_ms, service=service(_1=seconds))
    decided = policy.decide(seen)
    if isinstance(decided, WaitUntil):
        assert decided.at_s > NOW_S
        assert not seen.full
        late = view(rows, cap=cap, age_ms=age_ms + 5000, deadline_ms=deadline_ms, service=seen.service)
        decided = policy.decide(late)
    assert isinstance(decided, Run)
    assert decided.rows >= 1


@given(st.lists(st.integers(0, 120), min_size=1, max_size=40), st.integers(1, 32))
def test_goodput_runs_as_many_rows_in_time_as_any_batch_can(ages_ms, cap):
    ages_ms = sorted(ages_ms, reverse=True)

    def in_time(first, rows):
        return ages_ms[first] + 20 + rows <= 100

    batches = [(rows, -first) for first in range(len(ages_ms)) for rows in range(1, min(cap, len(ages_ms) - first) + 1)]
    most = max((batch for batch in batches if in_time(-batch[1], batch[0])), default=None)
    decided = Goodput(101.5).decide(late(*ages_ms, cap=cap))
    if most is None:
        assert decided == Run(min(cap, len(ages_ms)))
        return
    assert (min(decided.rows, len(ages_ms) - decided.pass_over), -decided.pass_over) == most
    assert in_time(decided.pass_over, decided.rows) or decided.rows == most[0]
