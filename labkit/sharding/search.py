"""The search itself: dynamic programming over (state, number of layers placed), compiled by Numba.

    value[state, i] = min over k of  join(enter[k], stage(k, i))      stage k..i-1 runs in the state's slot
    enter[k]        = min over earlier states p of  join(value[p, k], link(p, k))

`join` is max for the longest stage (the chains-on-chains problem of Bokhari, 1988, with links), + for the latency. The
inner minimum stops early: a stage only grows when it begins earlier, so once it alone is no better than the best, or
breaks a cap, nothing before it can help. `labkit bench sharding` times what that leaves of 1,000 layers and 72 devices.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numba import njit

__all__ = ["LATENCY", "PERIOD", "SHARE", "search"]

PERIOD, LATENCY, SHARE = 0, 1, 2  # what is made small: the longest stage or link, their sum, the fullest memory


@njit(cache=True)
def _link_s(lattice: Any, cut_bytes: float, source: int, target: int) -> float:
    """Slowest link between any member of one slot and any of the other."""
    members, _, _, _, alpha_s, bytes_per_s = lattice
    slowest = 0.0
    for column in range(members.shape[1]):
        one = members[source, column]
        for row in range(members.shape[1] if one >= 0 else 0):
            other = members[target, row]
            if other >= 0:
                slowest = max(slowest, alpha_s[one, other] + cut_bytes / bytes_per_s[one, other])
    return slowest


@njit(cache=True)
def _enter(goal: int, period_cap: float, lattice: Any, costs: Any, state: int, value: Any, origin: Any) -> Any:
    """Cost of having the first k layers placed and their result brought to this state's slot, for each k."""
    _, slot, starts, before, _, _ = lattice
    cut_bytes, allowed = costs[0], costs[1]
    enter = np.full(allowed.size, inf)
    if starts[state]:
        enter[0] = 0.0
    for cut in range(1, allowed.size - 1):
        if not allowed[cut]:
            continue
        for earlier in range(before[state, 1] - 1, before[state, 0] - 1, -1):  # the latest tend to be the cheapest
            placed = value[earlier, cut]
            if placed >= enter[cut]:
                continue
            link_s = _link_s(lattice, cut_bytes[cut], slot[earlier], slot[state])
            if link_s > period_cap:
                continue
            joined = max(placed, link_s) if goal == PERIOD else placed + link_s if goal == LATENCY else placed
            if joined < enter[cut]:
                enter[cut] = joined
                origin[state, cut] = earlier
    return enter


@njit(cache=True)
def _stage_s(members: Any, size: int, prefix_s: Any, first: int, last: int) -> float:
    """Time of layers first..last-1 on the slowest member."""
    slowest = 0.0
    for member in range(size):
        kind = members[member]
        slowest = max(slowest, prefix_s[kind, last] - prefix_s[kind, first])
    return slowest


@njit(cache=True)
def _tied_bytes(ties: Any, layer: int, last: int) -> float:
    """Tied weights that `layer` adds to a stage with the layers after it, up to last-1; those it has are not new."""
    run, weight_bytes, next_use = ties
    added = 0.0
    for tie in range(run[layer], run[layer + 1]):
        if next_use[tie] >= last:
            added += weight_bytes[tie]
    return added


@njit(cache=True)
def _place(goal: int, caps: Any, members: Any, costs: Any, last: int, enter: Any) -> Any:
    """Find the best stage that ends before layer `last`: its cost, and the layer that it begins with."""
    _, _, own_bytes, work_bytes, prefix_s, memory_bytes, ties = costs
    period_cap, share_cap = caps
    size, smallest = 0, inf
    for kind in members:
        if kind >= 0:
            size += 1
            smallest = min(smallest, memory_bytes[kind])
    weighed = goal == SHARE or share_cap < inf
    best, begin, weights, work, share = inf, -1, 0.0, 0.0, 0.0
    for first in range(last - 1, -1, -1):
        stage_s = _stage_s(members, size, prefix_s, first, last)
        if weighed:
            weights += own_bytes[first] + _tied_bytes(ties, first, last)
            work = max(work, work_bytes[first])
            share = (weights + work) / smallest
        cost = share if goal == SHARE else stage_s if goal == LATENCY else stage_s / size
        if cost >= best or share > share_cap or stage_s / size > period_cap:
            break
        joined = enter[first] + cost if goal == LATENCY else max(enter[first], cost)
        if joined < best:
            best, begin = joined, first
    return best, begin


@njit(cache=True)
def search(goal: int, period_cap: float, share_cap: float, lattice: Any, costs: Any) -> Any:
    """Fill the table; return value [states, L + 1], and for going back: begin and origin, both [states, L + 1]."""
    members, slot, _, _, _, _ = lattice
    allowed = costs[1]
    states, cuts = slot.size, allowed.size
    value = np.full((states, cuts), inf)
    begin = np.full((states, cuts), -1)
    origin = np.full((states, cuts), -1)
    for state in range(states):
        enter = _enter(goal, period_cap, lattice, costs, state, value, origin)
        for last in range(1, cuts):
            if allowed[last]:
                found = _place(goal, (period_cap, share_cap), members[slot[state]], costs, last, enter)
                value[state, last], begin[state, last] = found
    return value, begin, origin
