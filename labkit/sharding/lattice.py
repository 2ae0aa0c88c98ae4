"""Which devices may follow which: the states that the search walks through.

A *slot* is one device, or several that run the same stage as replicas. A *state* is a slot together with what has been
used before it; the predecessors of a state are one run of earlier states, because states are sorted.

    given order   state = slot; before it comes any slot that ends before this one begins (devices may be left out)
    any order     state = (devices used so far, slot); before it comes any state that used the rest

Devices that nothing tells apart are one *kind*, and only the number used of each kind counts, so an order is looked at
once, not once for each name of the same device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from labkit.errors import require
from labkit.sharding.problem import Floats, Problem

__all__ = ["Lattice", "any_order", "given_order"]

Integers: TypeAlias = npt.NDArray[np.int64]
Counts: TypeAlias = tuple[int, ...]

WORK_LIMIT = 2e9  # additions that a search may need at most: some ten seconds


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """States in an order in which predecessors come first.

    `kinds`: the devices of each kind. `members` [slots, replicas]: the kinds in each slot, filled up with -1.
    `slot` [states]; `starts` [states]: whether a plan may begin there; `before` [states, 2]: the run of predecessors.
    `alpha_s` and `bytes_per_s` [kinds, kinds]: the links.
    """

    kinds: tuple[tuple[int, ...], ...]
    members: Integers
    slot: Integers
    starts: npt.NDArray[np.bool_]
    before: Integers
    alpha_s: Floats
    bytes_per_s: Floats

    def devices(self, slots: list[int]) -> tuple[list[int], list[int]]:
        """Give each slot of a plan its devices: all of them in order, and how many each slot takes."""
        free = [list(devices) for devices in self.kinds]
        groups = [[free[kind].pop(0) for kind in self.members[slot] if kind >= 0] for slot in slots]
        return [device for group in groups for device in group], [len(group) for group in groups]


def given_order(problem: Problem, replicas: int) -> Lattice:
    """Stages follow the order of the problem's devices; replicas are neighbours in it."""
    count = len(problem.devices)
    runs = [tuple(range(end - size, end)) for end in range(1, count + 1) for size in range(1, min(replicas, end) + 1)]
    ending_before = np.searchsorted([run[-1] for run in runs], [run[0] for run in runs])
    return Lattice(
        kinds=tuple((device,) for device in range(count)),
        members=_members(runs),
        slot=np.arange(len(runs)),
        starts=np.ones(len(runs), bool),
        before=np.stack([np.zeros(len(runs), int), ending_before], axis=1),
        alpha_s=problem.alpha_s,
        bytes_per_s=problem.bytes_per_s,
    )


def any_order(problem: Problem, replicas: int) -> Lattice:
    """Stages may take the devices in any order.

    Raises `SettingError` when there are too many distinct orders to look at all.
    """
    kinds = _kinds(problem)
    totals = tuple(len(devices) for devices in kinds)
    _check(problem, totals, replicas)
    slots = [
        slot for slot in product(*(range(min(total, replicas) + 1) for total in totals)) if 0 < sum(slot) <= replicas
    ]
    runs: dict[Counts, tuple[int, int]] = {}  # the states that have used so much
    states: list[tuple[int, bool, tuple[int, int]]] = []
    for used in sorted(product(*(range(total + 1) for total in totals)), key=sum):
        begin = len(states)
        for number, slot in enumerate(slots):
            rest = tuple(have - take for have, take in zip(used, slot, strict=True))
            if min(rest) >= 0:
                states.append((number, not any(rest), runs[rest]))
        runs[used] = begin, len(states)
    return Lattice(
        kinds=kinds,
        members=_members([tuple(_spread(slot)) for slot in slots]),
        slot=np.array([state[0] for state in states]),
        starts=np.array([state[1] for state in states]),
        before=np.array([state[2] for state in states]),
        alpha_s=_between(problem.alpha_s, kinds),
        bytes_per_s=_between(problem.bytes_per_s, kinds),
    )


def _members(slots: list[tuple[int, ...]]) -> Integers:
    table = np.full((len(slots), max(len(slot) for slot in slots)), -1)
    for row, slot in zip(table, slots, strict=True):
        row[: len(slot)] = slot
    return table


def _spread(counts: Counts) -> Iterator[int]:
    for kind, count in enumerate(counts):
        yield from [kind] * count


def _kinds(problem: Problem) -> tuple[tuple[int, ...], ...]:
    kinds: list[list[int]] = []
    for device in range(len(problem.devices)):
        same = next((kind for kind in kinds if _same(problem, kind[0], device)), None)
        if same is None:
            kinds.append([device])
        else:
            same.append(device)
    return tuple(tuple(kind) for kind in kinds)


def _same(problem: Problem, one: int, other: int) -> bool:
    """Whether the two may change places without anybody noticing, the links to all the rest included."""
    if problem.memory_bytes[one] != problem.memory_bytes[other]:
        return False
    swap = np.arange(len(problem.devices))
    swap[[one, other]] = other, one
    links = (problem.alpha_s, problem.bytes_per_s)
    unmoved = ~np.eye(len(swap), dtype=bool)  # a link from a device to itself is never used
    return bool((problem.layer_s[one] == problem.layer_s[other]).all()) and all(
        bool((matrix == matrix[np.ix_(swap, swap)])[unmoved].all()) for matrix in links
    )


def _between(matrix: Floats, kinds: tuple[tuple[int, ...], ...]) -> Floats:
    """Read the links between kinds; two devices of one kind are linked like its first two."""
    between = matrix[np.ix_([kind[0] for kind in kinds], [kind[0] for kind in kinds])].copy()
    for number, kind in enumerate(kinds):
        if len(kind) > 1:
            between[number, number] = matrix[kind[0], kind[1]]
    return between


def _check(problem: Problem, totals: Counts, replicas: int) -> None:
    slots = sum(len(list(combinations(range(len(totals)), size))) for size in range(1, replicas + 1))
    used = float(np.prod([total + 1.0 for total in totals]))
    work = used * slots / 2 * len(problem) * (slots + len(problem) / 2)
    require(
        work <= WORK_LIMIT,
        f"{len(problem.devices)} devices of {len(totals)} kinds, {len(problem)} layers and {replicas} replicas have too"
        " many distinct orders to look at all",
        "Give the devices in a good order and ask for order='given'; up to 8 devices any order can be searched.",
    )
