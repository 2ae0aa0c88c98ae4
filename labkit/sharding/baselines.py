"""The cuts that most systems make, to compare with: as many layers, or as many weights, for each device.

Both look at neither time nor links nor memory caps, and use every device while there are layers for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labkit.sharding.partition import partition
from labkit.sharding.plan import Plan
from labkit.sharding.price import price
from labkit.sharding.problem import Problem

__all__ = ["equal_count", "parameter_balanced"]


def equal_count(problem: Problem) -> Plan:
    """Give each device as many layers as the next; the first ones take what is left over.

    Where such a boundary is not allowed, the nearest one that is takes its place.

    >>> equal_count(Problem([[1] * 5] * 3)).boundaries
    (0, 2, 4, 5)
    """
    layers, stages = len(problem), min(len(problem), len(problem.devices))
    sizes = [layers // stages + (stage < layers % stages) for stage in range(stages)]
    return price(problem, _snap(problem, np.cumsum(sizes)[:-1]))


def parameter_balanced(problem: Problem) -> Plan:
    """Make the most weights that a device gets as few as possible.

    >>> parameter_balanced(Problem([[1] * 4] * 2, param_bytes=[1, 1, 1, 9])).boundaries
    (0, 3, 4)
    """
    weights = np.tile(problem.param_bytes, (len(problem.devices), 1))
    by_weights = Problem(weights, allowed=problem.allowed)
    return price(problem, partition(by_weights).boundaries)


def _snap(problem: Problem, wanted: Sequence[int] | np.ndarray) -> list[int]:
    """Move each boundary to the nearest allowed cut; two that meet become one."""
    cuts = np.flatnonzero(problem.allowed)
    nearest = {int(cuts[np.abs(cuts - cut).argmin()]) for cut in wanted}
    return [0, *sorted(nearest - {0, len(problem)}), len(problem)]
