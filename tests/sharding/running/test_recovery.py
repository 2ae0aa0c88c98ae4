import itertools

import pytest

from labkit.errors import SettingError
from labkit.sharding.recovery import Budget, Losses, Remedy, decide


@pytest.mark.parametrize(
    ("exhausted", "spares", "seats", "stages", "remedy"),
    [
        (False, 1, 0, 0, Remedy.SPARE),
        (False, 0, 0, 0, Remedy.START),
        (True, 3, 1, 2, Remedy.SHRINK),
        (True, 3, 0, 2, Remedy.REPARTITION),
        (True, 3, 0, 0, Remedy.GIVE_UP),
    ],
)
def test_the_remedy_for_each_kind_of_loss(exhausted, spares, seats, stages, remedy):
    assert decide(exhausted=exhausted, spares=spares, seats_of_stage=seats, other_stages=stages) is remedy


def test_nobody_gives_up_while_anybody_can_help():
    for exhausted, spares, seats, stages in itertools.product([True, False], [0, 1], [0, 1], [0, 1]):
        given_up = decide(exhausted=exhausted, spares=spares, seats_of_stage=seats, other_stages=stages)
        assert (given_up is Remedy.GIVE_UP) == (exhausted and not seats and not stages)


def test_a_seat_may_lose_as_many_workers_as_its_budget_allows_within_the_window():
    budget, losses = Budget(restarts=2, window_s=10.0), Losses()
    for at_s in (0.0, 1.0):
        losses.add(at_s)
        assert not losses.exhausted(budget, at_s)
    losses.add(2.0)
    assert losses.exhausted(budget, 2.0)
    assert not losses.exhausted(budget, 11.5)


def test_a_loss_that_a_microbatch_is_to_blame_for_is_forgiven():
    budget, losses = Budget(restarts=0), Losses()
    losses.add(0.0)
    losses.forgive()
    losses.forgive()
    assert not losses.exhausted(budget, 0.0)


@pytest.mark.parametrize("settings", [{"kills": 0}, {"restarts": -1}, {"window_s": 0}])
def test_a_budget_outside_its_limits_is_refused(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        Budget(**settings)
