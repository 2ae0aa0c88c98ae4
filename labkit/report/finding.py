"""What the doctor found out about one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labkit.errors import require

__all__ = ["Finding", "State"]

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked thing: what it is, how it stands, and in one line what to do about it.

    "warn" is worth knowing and breaks nothing that is needed; "fail" does.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""

    def __post_init__(self) -> None:
        healthy = self.state == "ok"
        require(healthy or bool(self.remedy), f"{self.name}: {self.state} without a remedy", "Say what to do.")
        require("\n" not in self.remedy, f"{self.name}: the remedy has several lines", "Say it in one.")

    @property
    def ok(self) -> bool:
        """Whether nothing that is needed is broken."""
        return self.state != "fail"
