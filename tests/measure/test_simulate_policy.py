import pytest

from labkit.batching import AIMD, Decision, Deferral, FixedSize, Greedy, MaxWait, Policy, View, WaitUntil
from labkit.errors import MeasureError
from labkit.measure import LinearCurve, max_rate, simulate, simulate_policy
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
