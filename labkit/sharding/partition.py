"""Find the best cut: contiguous stages on the given devices, exactly.

Three objectives, each broken by the next where it leaves a choice:

    memory        the fullest device is as empty as possible, then throughput
    throughput    the longest stage or link is as short as possible, then latency
    latency       the sum of all stages and links is as small as possible

More stages raise the throughput. They do not shorten a single item's way: its latency is the sum of all stages and
links, and cutting can only add links to it, unless a faster device takes part.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeAlias

import numpy as np

from labkit.errors import require, require_known
from labkit.sharding.lattice import Lattice, any_order, given_order
from labkit.sharding.plan import Plan
from labkit.sharding.price import price
from labkit.sharding.problem import Floats, Problem

__all__ = ["Objective", "Order", "Table", "partition"]

Objective = Literal["throughput", "latency", "memory"]
Order = Literal["given", "any"]
Costs: TypeAlias = tuple[Any, ...]


def partition(
    problem: Problem, objective: Objective = "throughput", *, replicas: int = 1, order: Order = "given"
) -> Plan:
    """Return the best plan; the optimum, not an approximation.

    A device is left out when that is better. With `replicas` above 1 a stage may take so many devices, which run it in
    turns (neighbours, in the given order). `order="any"` tries every distinct order of the devices: any 8 devices, and
    more when many are alike. With `memory`, a device's memory counts by the share of its cap; without caps, in bytes.

    Raises `SettingError` when no plan keeps the caps, with the layer, the cap, what is missing and what would do.

    >>> plan = partition(Problem([[1, 1, 1, 3], [1, 1, 1, 3]]))
    >>> plan.boundaries, plan.bottleneck_s, plan.latency_s
    ((0, 3, 4), 3.0, 6.0)
    """
    _check(problem, objective, replicas, order)
    lattice = given_order(problem, replicas) if order == "given" else any_order(problem, replicas)
    table = Table(problem, lattice)
    plan = table.best(objective)
    if plan is None:
        from labkit.sharding.explain import explain

        raise explain(problem, replicas=replicas, order=order)
    return plan


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A problem and the states to search it through."""

    problem: Problem
    lattice: Lattice

    def best(self, objective: Objective) -> Plan | None:
        """The best plan within the caps; None if there is none."""
        share_cap = 1.0 if np.isfinite(self.problem.memory_bytes).any() else inf
        period_cap = inf
        if objective == "memory":
            least = self.least_share()
            if least > share_cap:
                return None
            share_cap = least
        if objective != "latency":
            period_cap = float(self.walk("period", inf, share_cap)[0][:, -1].min())
        return self.plan(self.walk("latency", period_cap, share_cap))

    def least_share(self) -> float:
        """The share of its cap that the fullest device needs at least, were caps no obstacle (without caps: bytes)."""
        return float(self.walk("share", inf, inf)[0][:, -1].min())

    def walk(self, goal: str, period_cap: float, share_cap: float) -> Any:
        """Run the search for one goal under the caps; see `search` for what it returns."""
        # Numba takes half a second to load, which a worker process that only imports the package need not pay.
        from labkit.sharding import search

        goals = {"period": search.PERIOD, "latency": search.LATENCY, "share": search.SHARE}
        table = self.lattice
        states = (table.members, table.slot, table.starts, table.before, table.alpha_s, table.bytes_per_s)
        return search.search(goals[goal], period_cap, share_cap, states, self.costs())

    def costs(self) -> Costs:
        """The problem as the search reads it: per kind of device, with tied weights sorted by layer."""
        problem, ties = self.problem, _ties(self.problem)
        first = [kind[0] for kind in self.lattice.kinds]
        memory_bytes = problem.memory_bytes[first]
        if np.isinf(problem.memory_bytes).all():
            memory_bytes = np.ones(len(first))
        cuts, layers = (problem.cut_bytes, problem.allowed), (problem.param_bytes, problem.work_bytes)
        return (*cuts, *layers, problem.prefix_s[first], memory_bytes, ties)

    def plan(self, walked: Any) -> Plan | None:
        """Go back through the table from the best end."""
        value, begin, origin = walked
        state, last = int(value[:, -1].argmin()), len(self.problem)
        if value[state, last] == inf:
            return None
        slots, boundaries = [], [last]
        while last > 0:
            slots.append(int(self.lattice.slot[state]))
            last = int(begin[state, last])
            boundaries.append(last)
            state = int(origin[state, last])
        devices, replicas = self.lattice.devices(slots[::-1])
        return price(self.problem, boundaries[::-1], devices, replicas)


def _ties(problem: Problem) -> tuple[Any, Floats, Any]:
    """List for each layer the tied weights that it uses, with the next layer that uses the same one."""
    uses = sorted(
        (layer, tie.weight_bytes, following)
        for tie in problem.tied
        for layer, following in zip(sorted(set(tie.layers)), [*sorted(set(tie.layers))[1:], len(problem)], strict=True)
    )
    runs = np.searchsorted([use[0] for use in uses], np.arange(len(problem) + 1))
    return runs, np.array([use[1] for use in uses], float), np.array([use[2] for use in uses], int)


def _check(problem: Problem, objective: str, replicas: int, order: str) -> None:
    require_known("objective", objective, ("throughput", "latency", "memory"))
    require_known("order", order, ("given", "any"))
    require(
        1 <= replicas <= len(problem.devices),
        f"replicas is {replicas}; it must lie in 1..{len(problem.devices)}, the number of devices",
        "Give the most devices that one stage may take.",
    )
    capped = np.isfinite(problem.memory_bytes)
    require(
        objective != "memory" or bool(capped.all() or not capped.any()),
        "Some devices have a memory cap and others have none",
        "For the objective 'memory' give a cap for each, so that their shares can be compared.",
    )
