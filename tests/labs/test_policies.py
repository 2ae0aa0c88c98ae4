import pytest

from labkit.batching import Run, ServiceModel, View
from labkit.errors import UnknownName
from labkit.labs.policies import NO_BATCHING, POLICIES, policy


def _view(rows: int, waited_s: float) -> View:
    return View(
        now_s=100.0,
        rows=rows,
        cap=8,
        full=rows >= 8,
        oldest_s=100.0 - waited_s,
        deadline_s=float("inf"),
        service=ServiceModel(),
    )


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_runs_what_has_waited_for_a_second(name: str) -> None:
    decision = policy(name, cap=8, wait_ms=10.0, slo_ms=100.0).decide(_view(3, 1.0))
    assert isinstance(decision, Run)
    assert 1 <= decision.rows <= 8


def test_no_batching_runs_one_row_whatever_waits() -> None:
    assert policy(NO_BATCHING).decide(_view(8, 0.0)) == Run(1)


def test_max_wait_zero_decides_like_greedy() -> None:
    for rows in range(1, 12):
        view = _view(rows, 0.0)
        assert policy("max wait", wait_ms=0.0).decide(view) == policy("greedy").decide(view)


def test_an_unknown_policy_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'greedy'"):
        policy("gredy")
