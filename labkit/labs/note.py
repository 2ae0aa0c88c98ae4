"""What a lab says between its points."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Note"]


@dataclass(frozen=True, slots=True)
class Note:
    """One line about the stage that begins now: shown in a panel's status line, printed in a headless run.

    >>> Note("Warming up for 2 s")
    Note(text='Warming up for 2 s')
    """

    text: str
