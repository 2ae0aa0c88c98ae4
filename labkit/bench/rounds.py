"""Rounds: every system in turn, in an order that changes, and what a handful of rounds can tell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from labkit.measure import ratio

__all__ = ["Spread", "in_turn", "side_by_side", "spread"]

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Spread:
    """A value with its range over rounds; `nan` when there was no round."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


def in_turn(items: Sequence[Item], number: int) -> tuple[Item, ...]:
    """The order of round `number`: forward, back, then the same from the next item on.

    A machine that slows down or speeds up steadily favours nobody, and nobody always follows the same neighbour.

    >>> ["".join(in_turn("ABC", number)) for number in range(4)]
    ['ABC', 'CBA', 'BCA', 'ACB']
    """
    shift = number // 2 % max(1, len(items))
    order = (*items[shift:], *items[:shift])
    return order[::-1] if number % 2 else order


def spread(values: Sequence[float]) -> Spread:
    """The median over the rounds, with the lowest and the highest.

    >>> spread([3.0, 1.0, 2.0])
    Spread(value=2.0, low=1.0, high=3.0)
    """
    return Spread(statistics.median(values), min(values), max(values)) if values else Spread()


def side_by_side(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours / theirs, round by round: the geometric mean with its 95 % t interval, from three rounds up.

    The systems met the same load in the same round, so what the load did cancels. Two rounds show their own two ratios
    (a t interval of two would hold everything), one shows no interval, and an infinite latency only its side of one.

    >>> round(side_by_side([10.0, 20.0], [20.0, 40.0]).value, 6)
    0.5
    """
    if not ours or len(ours) != len(theirs):
        return Spread()
    if not all(math.isfinite(value) and value > 0 for value in (*ours, *theirs)):
        return Spread(_extreme(ours, theirs))
    if len(ours) == 1:
        return Spread(ours[0] / theirs[0])
    found = ratio(theirs, ours)
    if len(ours) == 2:
        own = [one / other for one, other in zip(ours, theirs, strict=True)]
        return Spread(found.value, min(own), max(own))
    return Spread(found.value, found.low, found.high)


def _extreme(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """0 if only theirs failed somewhere, infinite if only ours did, else no number."""
    failed, beaten = any(map(math.isinf, ours)), any(map(math.isinf, theirs))
    if failed == beaten:
        return math.nan
    return math.inf if failed else 0.0
