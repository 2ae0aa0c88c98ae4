"""Orders and spreads: who goes when, and what rounds tell together."""

import math
from collections import Counter

import numpy as np
import pytest

from labkit.bench.rounds import Spread, in_turn, side_by_side, spread


def test_two_systems_go_a_b_b_a() -> None:
    assert [in_turn("AB", number) for number in range(2)] == [("A", "B"), ("B", "A")]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_over_a_full_cycle_everybody_stands_everywhere_equally_often(count: int) -> None:
    places = Counter(
        (item, place) for number in range(2 * count) for place, item in enumerate(in_turn(range(count), number))
    )
    assert set(places.values()) == {2}
    assert len(places) == count * count


def test_a_spread_is_the_median_with_the_range() -> None:
    assert spread([5.0, 1.0, 2.0, 4.0]) == Spread(3.0, 1.0, 5.0)


def test_a_spread_of_nothing_is_no_number() -> None:
    assert math.isnan(spread([]).value)


def test_a_ratio_is_geometric_with_a_t_interval_on_the_logarithms() -> None:
    ours, theirs = [10.0, 12.0, 9.0], [20.0, 18.0, 21.0]
    logs = np.log(ours) - np.log(theirs)
    # 4.302653 is Student's t for 95 % and two degrees of freedom, from a table.
    half = 4.302653 * logs.std(ddof=1) / math.sqrt(3)
    found = side_by_side(ours, theirs)
    expected = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
    assert [found.value, found.low, found.high] == pytest.approx(expected.tolist(), rel=1e-5)


def test_two_rounds_show_their_own_ratios() -> None:
    found = side_by_side([10.0, 30.0], [20.0, 40.0])
    assert (found.low, found.high) == (0.5, 0.75)
    assert found.value == pytest.approx(math.sqrt(0.5 * 0.75))


def test_one_round_gives_a_ratio_without_an_interval() -> None:
    found = side_by_side([3.0], [4.0])
    assert found.value == 0.75
    assert math.isnan(found.low)


def test_where_only_one_side_failed_the_ratio_takes_that_side() -> None:
    assert side_by_side([10.0, 10.0], [20.0, math.inf]).value == 0.0
    assert side_by_side([math.inf, 10.0], [20.0, 20.0]).value == math.inf
    assert math.isnan(side_by_side([math.inf], [math.inf]).value)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], []), ([1.0, 2.0], [1.0]), ([math.nan], [1.0])])
def test_without_matching_rounds_there_is_no_ratio(ours: list[float], theirs: list[float]) -> None:
    assert math.isnan(side_by_side(ours, theirs).value)
