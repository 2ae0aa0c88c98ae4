"""Each policy's documented behaviour as a table of views and decisions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching import (
    AIMD,
    Deferral,
    FixedSize,
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


def view(rows, *, cap=8, age_ms=0.0, full=None, deadline_ms=math.inf, service=None):
    return View(
        now_s=NOW_S,
        rows=rows,
        cap=cap,
        full=rows >= cap if full is None else full,
        oldest_s=NOW_S - age_ms / 1000,
        deadline_s=NOW_S + deadline_ms / 1000,
        service=service or ServiceModel(),
    )


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
    ],
)
def test_a_senseless_setting_is_refused_when_the_policy_is_made(make):
    with pytest.raises(SettingError):
        make()


@given(
    st.sampled_from([Greedy(), MaxWait(7), FixedSize(5), PreferredSizes((2, 6)), AIMD(30), Deferral(50)]),
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
