"""What given boundaries cost: the price of any cut, good or bad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from labkit.errors import require
from labkit.sharding.plan import Plan
from labkit.sharding.problem import Problem

__all__ = ["price"]


def price(
    problem: Problem,
    boundaries: Sequence[int],
    devices: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
) -> Plan:
    """Price the stages between `boundaries` (0 and the number of layers included), memory caps not looked at.

    `devices` are indices in stage order (default: the first ones), `replicas` says how many of them each stage takes.
    A stage with several is as fast as its slowest times their number; a link to or from it is its slowest pair's.

    Raises `SettingError` when the boundaries are not those of a partition, or lie where no cut is allowed.

    >>> price(Problem([[1, 1, 2], [2, 2, 4]]), [0, 2, 3]).stage_s
    (2.0, 4.0)
    """
    replicas = tuple(replicas or (1,) * (len(boundaries) - 1))
    devices = tuple(devices if devices is not None else range(sum(replicas)))
    _check(problem, boundaries, devices, replicas)
    groups = list(_groups(devices, replicas))
    stages = list(zip(groups, pairwise(boundaries), strict=True))
    stage_s = tuple(max(problem.stage_s(device, *ends) for device in group) for group, ends in stages)
    link_s = tuple(
        max(problem.link_s(source, target, cut) for source in before for target in after)
        for (before, after), cut in zip(pairwise(groups), boundaries[1:-1], strict=True)
    )
    period_s = (seconds / len(group) for seconds, group in zip(stage_s, groups, strict=True))
    return Plan(
        boundaries=tuple(int(cut) for cut in boundaries),
        devices=devices,
        replicas=replicas,
        stage_s=stage_s,
        link_s=link_s,
        bottleneck_s=max(*period_s, *link_s, 0.0),
        latency_s=sum(stage_s) + sum(link_s),
        memory_bytes=tuple(round(problem.stage_bytes(*ends)) for _, ends in stages),
    )


def _groups(devices: Sequence[int], replicas: Sequence[int]) -> Iterator[tuple[int, ...]]:
    start = 0
    for count in replicas:
        yield tuple(devices[start : start + count])
        start += count


def _check(problem: Problem, boundaries: Sequence[int], devices: Sequence[int], replicas: Sequence[int]) -> None:
    ordered = all(before < after for before, after in pairwise(boundaries))
    require(
        len(boundaries) >= 2 and ordered and boundaries[0] == 0 and boundaries[-1] == len(problem),
        f"The boundaries {tuple(boundaries)} are not those of a partition",
        f"Give rising numbers from 0 to {len(problem)}.",
    )
    refused = [cut for cut in boundaries if not problem.allowed[cut]]
    require(
        not refused,
        f"No cut is allowed before layers {refused}",
        " ".join(problem.refusals.get(cut, "") for cut in refused) or "Move those boundaries.",
    )
    fits = len(replicas) == len(boundaries) - 1 and min(replicas) >= 1 and len(devices) == sum(replicas)
    known = set(devices) <= set(range(len(problem.devices))) and len(set(devices)) == len(devices)
    require(
        fits and known,
        f"{len(boundaries) - 1} stages with replicas {tuple(replicas)} on devices {tuple(devices)}",
        f"Give a different device below {len(problem.devices)} for each replica of each stage.",
    )
