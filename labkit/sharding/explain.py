"""Say why nothing fits: which layer, which cap, how much is missing, and what would be enough."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np

from labkit.errors import SettingError
from labkit.sharding.lattice import any_order, given_order
from labkit.sharding.partition import Order, Table
from labkit.sharding.plan import Plan
from labkit.sharding.problem import Problem

__all__ = ["explain"]


def explain(problem: Problem, *, replicas: int = 1, order: Order = "given") -> SettingError:
    """Build the error for a problem that no plan solves within the memory caps."""
    return _one_too_large(problem) or _all_too_large(problem, replicas, order)


def _one_too_large(problem: Problem) -> SettingError | None:
    """Layers that cannot be separated, and no device takes them."""
    runs = pairwise(np.flatnonzero(problem.allowed).tolist())
    first, last = max(runs, key=lambda run: problem.stage_bytes(*run))
    need, largest = problem.stage_bytes(first, last), int(problem.memory_bytes.argmax())
    cap = float(problem.memory_bytes[largest])
    if need <= cap:
        return None
    what = f"Layer {problem.names[first]!r} needs"
    if last - first > 1:
        what = f"Layers {problem.names[first]!r} to {problem.names[last - 1]!r} cannot be separated and need"
    reasons = sorted({problem.refusals[cut] for cut in range(first + 1, last) if cut in problem.refusals})
    return SettingError(
        f"{what} {_size(need)}, and the largest device, {problem.devices[largest]!r}, has {_size(cap)}:"
        f" {_size(need - cap)} are missing",
        f"Give a device with at least {_size(need)}, or lower its precision or the microbatch." + _list(reasons),
    )


def _all_too_large(problem: Problem, replicas: int, order: Order) -> SettingError:
    """Each layer has a place somewhere, but not all of them, one after the other."""
    table = Table(problem, given_order(problem, 1) if order == "given" else any_order(problem, 1))
    reached = np.isfinite(table.walk("share", inf, 1.0)[0]).any(axis=0)
    layer = int(np.flatnonzero(reached)[-1]) if reached.any() else 0
    total, caps = _total(problem), float(problem.memory_bytes.sum())
    short = f"all layers need {_size(total)} and the devices have {_size(caps)}"
    if total <= caps:
        short = f"they have {_size(caps)} for {_size(total)}, but no cut shares that out"
    raised = table.plan(table.walk("share", inf, inf))
    assert raised is not None  # without caps there is always a plan
    manner = "in this order" if order == "given" else "in any order"
    return SettingError(
        f"The devices hold the first {layer} of {len(problem)} layers {manner}, and {problem.names[layer]!r} finds no"
        f" place ({short})",
        f"Enough would be: {_enough(problem, raised)}." + _other_order(problem, replicas, order),
    )


def _total(problem: Problem) -> float:
    """Weights of all layers and the least working memory that goes with them."""
    ties = sum(tie.weight_bytes for tie in problem.tied)
    return float(problem.param_bytes.sum() + ties + problem.work_bytes.max())


def _enough(problem: Problem, raised: Plan) -> str:
    """Caps that would do: those of the plan in which the fullest device is as empty as possible."""
    needs = {device: raised.memory_bytes[stage] for stage in range(len(raised)) for device in raised.devices_of(stage)}
    short = {device: need for device, need in needs.items() if need > problem.memory_bytes[device]}
    return ", ".join(
        f"{problem.devices[device]!r} with {_size(need)} ({_size(need - problem.memory_bytes[device])} more)"
        for device, need in sorted(short.items())
    )


def _other_order(problem: Problem, replicas: int, order: Order) -> str:
    if order == "any":
        return ""
    try:
        found = Table(problem, any_order(problem, 1)).best("throughput")
    except SettingError:  # too many orders to look at
        return ""
    return " Or take the devices in another order: order='any' finds one that fits." if found else ""


def _list(reasons: list[str]) -> str:
    return f" They stay together because: {'; '.join(reasons)}." if reasons else ""


def _size(size_bytes: float) -> str:
    """Write bytes for a person.

    >>> _size(1_500_000_000)
    '1.5 GB'
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:.4g} bytes"
