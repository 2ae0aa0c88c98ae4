import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching import AIMD, Decision, Deferral, FixedSize, Goodput, Greedy, MaxWait, Policy, Run, View, WaitUntil
from labkit.batching.queue import Bucket, Times
from labkit.batching.submitted import Submitted
from labkit.errors import MeasureError
from labkit.measure import LinearCurve, max_rate, simulate, simulate_policy
from labkit.measure.simulate_policy import _Line
from labkit.workloads import Poisson

CURVE = LinearCurve(20.0, 1.0)


@pytest.mark.parametrize("rate", [50.0, 200.0, 400.0])
@pytest.mark.parametrize(("policy", "wait_ms"), [(Greedy(), 0.0), (MaxWait(5.0), 5.0), (MaxWait(25.0), 25.0)])
def test_it_agrees_with_the_queue_simulation_that_knows_the_policy(policy: Policy, wait_ms: float, rate: float) -> None:
    crowd = Poisson(rate).times(60.0, seed=3)
    asked, known = simulate_policy(policy, CURVE, crowd, cap=32), simulate(CURVE, crowd, cap=32, wait_ms=wait_ms)
    # The last batch differs: it fills never, and only the one that is asked knows of nobody coming.
    assert asked.percentile_ms(50) == pytest.approx(known.percentile_ms(50), rel=1e-3)
    assert asked.percentile_ms(99) == pytest.approx(known.percentile_ms(99), rel=1e-3)
    assert asked.mean_batch == pytest.approx(known.mean_batch, rel=1e-3)


def test_deferral_keeps_the_goal_with_a_device_that_rests_half_the_time() -> None:
    crowd = Poisson(200.0).times(60.0, seed=3)
    late, greedy = simulate_policy(Deferral(100.0), CURVE, crowd), simulate_policy(Greedy(), CURVE, crowd)
    assert late.percentile_ms(99) <= 100.0
    assert late.busy_share < 0.6 < greedy.busy_share
    assert late.mean_batch > 2 * greedy.mean_batch


def test_goodput_is_greedy_where_all_are_in_time_and_lets_few_be_late_where_greedy_makes_many_so() -> None:
    calm, busy = Poisson(100.0).times(20.0, seed=3), Poisson(560.0).times(60.0, seed=3)
    alike = [simulate_policy(policy, CURVE, calm).latencies_ms for policy in (Goodput(100.0), Greedy())]
    assert (alike[0] == alike[1]).all()
    few, many = (simulate_policy(policy, CURVE, busy).latencies_ms > 100.0 for policy in (Goodput(100.0), Greedy()))
    assert 0 < 2 * few.sum() < many.sum()


def test_whoever_is_passed_over_fills_the_room_and_comes_first_again_after_the_ageing() -> None:
    class Fewest:
        def decide(self, view: View) -> Decision:
            return Run(1, pass_over=1)

    arrivals_ms = [0.0, 1.0, 2.0, 3.0, 4.0]
    served = simulate_policy(Fewest(), CURVE, [at / 1e3 for at in arrivals_ms], ageing_s=0.050)
    # The first is alone; then 1 and 3 stand back, behind 2 and 4, and come first when nobody else is left.
    assert served.latencies_ms + arrivals_ms == pytest.approx([21.0, 84.0, 42.0, 105.0, 63.0])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(1, 4)), max_size=40))
def test_its_line_and_the_batcher_s_queue_let_the_same_go_first(steps: list[tuple[int, int, int]]) -> None:
    line, bucket, now_s = _Line([float(number) for number in range(2000)], 4.0), Bucket("a"), -1.0
    for wait, passed, rows in steps:
        before, now_s = line.arrived, now_s + wait
        line.arrive(now_s)
        for number in range(before, line.arrived):
            request = Submitted(lambda _: None)
            request.arrive(number, None, float(number), None, math.inf, 0, 4.0)
            bucket.push(request)
        line.pass_over(passed)
        bucket.pass_over(passed, 4.0)
        assert line.arrivals_s() == bucket.arrivals_s()
        taken, _ = bucket.take(rows, math.inf, Times())
        assert [line.take() for _ in taken] == [one.number for one in taken]


def test_one_row_at_a_time_holds_a_twentieth_of_greedy() -> None:
    def held(policy: Policy) -> float:
        return max_rate(
            lambda rate: simulate_policy(policy, CURVE, Poisson(rate).times(5000 / rate, seed=1)), 100.0, 5.0, 620.0
        ).rate_per_s

    assert 15 < held(Greedy()) / held(FixedSize(1)) < 25


def test_aimd_learns_the_largest_batch_within_its_goal() -> None:
    policy = AIMD(slo_ms=40.0)
    simulate_policy(policy, CURVE, Poisson(2000.0).times(20.0, seed=1), cap=64)
    assert 16 <= policy.limit <= 22  # 20 + 20 = 40, around which it saws


def test_a_policy_that_waits_for_ever_is_an_error_and_no_endless_loop() -> None:
    class Never:
        def decide(self, view: View) -> Decision:
            return WaitUntil(float("inf"))

    with pytest.raises(MeasureError, match="let 3 requests wait"):
        simulate_policy(Never(), CURVE, [0.0, 0.1, 0.2])
