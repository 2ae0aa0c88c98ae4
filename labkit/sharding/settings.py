"""The limits of a pipeline, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from labkit.errors import require
from labkit.sharding.balance import Balancing
from labkit.sharding.patience import Patience
from labkit.sharding.recovery import Budget

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Every number that bounds a pipeline.

    A microbatch has at most `microbatch_rows` rows (None: a request is not cut). At most `max_queue` requests wait.
    Each worker has up to `depth` jobs, one running and the others at hand. `timeout_s` is the total time limit of
    requests that bring none. `balancing=None` never moves a boundary.
    """

    microbatch_rows: int | None = None
    max_queue: int = 1024
    depth: int = 2
    timeout_s: float = math.inf
    spares: int = 0
    patience: Patience = field(default_factory=Patience)
    budget: Budget = field(default_factory=Budget)
    balancing: Balancing | None = field(default_factory=Balancing)

    def __post_init__(self) -> None:
        for name in ("max_queue", "depth"):
            value = getattr(self, name)
            require(value >= 1, f"{name} is {value}; it must be at least 1", "Give a count.")
        rows = self.microbatch_rows
        require(rows is None or rows >= 1, f"microbatch_rows is {rows}; it must be at least 1", "None: do not cut.")
        require(self.spares >= 0, f"spares is {self.spares}; it must not be negative", "Give a count.")
        require(self.timeout_s > 0, f"timeout_s is {self.timeout_s}; it must be positive", "Leave it out for no limit.")
