"""The ways to use a system: one may have several, each a row of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.bench.system import System

__all__ = ["Way"]


@dataclass(frozen=True, slots=True)
class Way:
    """`name` is how tables call it; its worker is asked to `do` it. `slo_ms`: the latency goal that it is told."""

    name: str
    system: System
    do: str
    slo_ms: int | None = None

    @property
    def told(self) -> dict[str, Any]:
        """What its worker is told beside the load."""
        return {} if self.slo_ms is None else {"slo_ms": self.slo_ms}
