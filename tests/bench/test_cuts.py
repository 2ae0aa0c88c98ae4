"""Case (c): the cut that is timed is right, and its bound is a bound."""

import itertools

import numpy as np
import pytest

from labkit.bench import cuts
from labkit.bench.cuts import CutPlan
from labkit.sharding import Link, Problem, partition

PLAN = CutPlan(layers=9, devices=4, times=2)


def rows(part, system):
    return {row.metric: row for row in part.rows if row.system == f"labkit, {system}"}


def test_both_problems_are_timed() -> None:
    said: list[str] = []
    part = cuts.run(said.append, PLAN)
    assert said == ["cut of 9 layers on 4 devices"]
    for system in ("all alike", "four speeds"):
        time_row = rows(part, system)["time"]
        assert 0 < time_row.low <= time_row.value <= time_row.high
        assert time_row.unit == "ms"


def test_no_cut_is_below_the_lower_bound() -> None:
    part = cuts.run(lambda text: None, PLAN)
    assert all(rows(part, system)["longest stage / lower bound"].value >= 1 for system in ("all alike", "four speeds"))


def test_the_lower_bound_lies_below_every_cut() -> None:
    problem = Problem([[1.0, 4.0, 2.0, 2.0], [2.0, 8.0, 4.0, 4.0]], links=Link())
    longest = [
        max(problem.stage_s(first, 0, cut), problem.stage_s(second, cut, 4))
        for cut in (1, 2, 3)
        for first, second in itertools.permutations((0, 1))
    ]
    assert cuts._least_s(problem) <= min(longest)
    # Nine seconds of work on one device of speed 1 and one of speed 1/2.
    assert cuts._least_s(problem) == pytest.approx(6.0)
    assert partition(problem).bottleneck_s >= 6.0


def test_the_speeds_take_turns() -> None:
    problem = cuts._problem(PLAN, (1.0, 0.5))
    assert problem.layer_s.shape == (4, 9)
    np.testing.assert_allclose(problem.layer_s[1], problem.layer_s[0] / 2)
    np.testing.assert_allclose(problem.layer_s[2], problem.layer_s[0])
