"""All exercises, by id and by lab."""

from __future__ import annotations

from labkit.errors import require_known
from labkit.teach.exercise import Exercise
from labkit.teach.exercises import LABS

__all__ = ["exercise", "exercises"]


def exercise(id: str) -> Exercise:
    """The exercise of that id, such as "10a"; raises `UnknownName` with the nearest one.

    >>> exercise("10b").lab
    '10_batching_curve'
    """
    known = {each.id: each for each in exercises()}
    require_known("exercise", id, known)
    return known[id]


def exercises(lab: str | None = None) -> tuple[Exercise, ...]:
    """The exercises of one lab, or of all of them, in their order.

    >>> [each.id for each in exercises("10_batching_curve")]
    ['10a', '10b']
    """
    return tuple(each for name, members in LABS.items() if lab in (None, name) for each in members)
