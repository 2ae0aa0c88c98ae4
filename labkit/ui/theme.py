"""How series look, in live charts and in static figures alike.

The colours are those of Okabe and Ito (jfly.uni-koeln.de/color), which people with any kind of colour blindness can
tell apart. Each is doubled by a dash pattern, so that a chart also survives a projector and a black-and-white printer.
Their yellow is left out (nobody can see it on white); their black is the ink of the page, which is white on a dark one.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["INK", "PENS", "Pen", "pen"]

INK = "currentColor"


@dataclass(frozen=True, slots=True)
class Pen:
    """A colour and a dash pattern (lengths in pixels of line and gap; none: a full line)."""

    colour: str
    dash: tuple[int, ...] = ()


PENS = (
    Pen("#0072B2"),
    Pen("#D55E00", (8, 4)),
    Pen("#009E73", (3, 3)),
    Pen("#CC79A7", (10, 3, 3, 3)),
    Pen("#E69F00", (14, 4)),
    Pen("#56B4E9", (6, 3, 2, 3, 2, 3)),
    Pen(INK, (2, 4)),
)


def pen(index: int) -> Pen:
    """The pen of the series at `index`; they begin again after the last.

    >>> pen(0) == pen(len(PENS))
    True
    """
    return PENS[index % len(PENS)]
