from itertools import pairwise

import numpy as np
import pytest

from labkit.sharding.baselines import equal_count, parameter_balanced
from labkit.sharding.problem import Problem


def test_equal_counts_differ_by_one_layer_at_most():
    for layers in range(1, 30):
        for devices in range(1, 8):
            sizes = np.diff(equal_count(Problem(np.ones((devices, layers)))).boundaries)
            assert sizes.sum() == layers
            assert sizes.max() - sizes.min() <= 1


def test_a_boundary_that_is_not_allowed_moves_to_the_nearest_one():
    problem = Problem(np.ones((2, 6)), refusals={3: "no", 4: "no"})
    assert equal_count(problem).boundaries == (0, 2, 6)


def test_without_any_allowed_cut_there_is_one_stage():
    problem = Problem(np.ones((3, 3)), refusals={1: "no", 2: "no"})
    assert equal_count(problem).boundaries == parameter_balanced(problem).boundaries == (0, 3)


@pytest.mark.parametrize("seed", range(5))
def test_parameters_are_balanced_as_well_as_any_cut_can(seed, brute):
    weights = np.random.default_rng(seed).integers(1, 20, 7)
    problem = Problem(np.ones((3, 7)), param_bytes=weights)
    least = min(max(weights[a:b].sum() for a, b in pairwise(cuts)) for _, cuts in brute.plans(problem, 1, "given"))
    assert max(parameter_balanced(problem).memory_bytes) == least
