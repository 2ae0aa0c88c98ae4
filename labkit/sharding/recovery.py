"""What to do when a worker is lost: pure decisions, made from a few numbers and tested without a process.

    a seat is lost ─┬─ it may be filled again ─┬─ a warm spare waits ──────── take it          (milliseconds)
                    │                          └─ none does ───────────────── start a worker   (one fork)
                    └─ it may not ─┬─ its stage has another seat ──────────── go on without it
                                   ├─ other stages survive ────────────────── re-partition over them
                                   └─ nobody is left ──────────────────────── give up

A seat may not be filled again when it has lost too many workers lately (a broken device, a stage that dies on load).
A microbatch that kills workers is told from a seat that loses them: after its second kill it fails alone, and what it
has killed is not counted against the seats.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from labkit.errors import require

__all__ = ["Budget", "Losses", "Remedy", "decide"]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much loss is borne: `kills` of one microbatch, `restarts` of one seat within `window_s` seconds."""

    kills: int = 2
    restarts: int = 8
    window_s: float = 60.0

    def __post_init__(self) -> None:
        require(self.kills >= 1, f"kills is {self.kills}; it must be at least 1", "Give a count.")
        require(self.restarts >= 0, f"restarts is {self.restarts}; it must not be negative", "0: re-partition at once.")
        require(self.window_s > 0, f"window_s is {self.window_s}; it must be positive", "Give seconds.")


class Remedy(Enum):
    """What follows a loss."""

    SPARE = "take a warm spare"
    START = "start a worker"
    SHRINK = "go on with the stage's other seats"
    REPARTITION = "cut the model anew for the surviving stages"
    GIVE_UP = "nobody is left"


@dataclass(slots=True)
class Losses:
    """When a seat has lost workers; the loss itself counts, so `restarts=0` allows none."""

    at_s: deque[float] = field(default_factory=deque)

    def add(self, now_s: float) -> None:
        """Note a loss."""
        self.at_s.append(now_s)

    def forgive(self) -> None:
        """Take the newest back: a microbatch was to blame."""
        if self.at_s:
            self.at_s.pop()

    def exhausted(self, budget: Budget, now_s: float) -> bool:
        """Whether the seat may not be filled again."""
        while self.at_s and self.at_s[0] < now_s - budget.window_s:
            self.at_s.popleft()
        return len(self.at_s) > budget.restarts


def decide(*, exhausted: bool, spares: int, seats_of_stage: int, other_stages: int) -> Remedy:
    """Choose the remedy for one lost seat; `seats_of_stage` counts its stage's other seats that still run.

    >>> decide(exhausted=False, spares=1, seats_of_stage=0, other_stages=2)
    <Remedy.SPARE: 'take a warm spare'>
    >>> decide(exhausted=True, spares=1, seats_of_stage=0, other_stages=2).name
    'REPARTITION'
    """
    if not exhausted:
        return Remedy.SPARE if spares else Remedy.START
    if seats_of_stage:
        return Remedy.SHRINK
    return Remedy.REPARTITION if other_stages else Remedy.GIVE_UP
