"""What the users of an engine saw, told apart by whose fault it was."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from labkit.errors import QueueFull
from labkit.records import RequestRecord

__all__ = ["Client", "Tally", "tally"]


@dataclass(slots=True)
class Tally:
    """What the users of one system saw: answered rightly, wrongly refused or failed, and what was computed in vain."""

    sent: int = 0
    right: int = 0
    guilty_failed: int = 0
    innocent_failed: int = 0
    refused: int = 0
    in_vain: int = 0
    slowest_ms: float = 0.0

    def sentence(self, system: str) -> str:
        """The tally in words."""
        parts = [f"{system}: {self.right} of {self.sent} answered"]
        parts += [f"{self.innocent_failed} innocent failed"] if self.innocent_failed else []
        parts += [f"{self.guilty_failed} guilty failed"] if self.guilty_failed else []
        parts += [f"{self.refused} refused or timed out"] if self.refused else []
        parts += [f"{self.in_vain} computed for nobody"] if self.in_vain else []
        return ", ".join([*parts, f"slowest {self.slowest_ms:.0f} ms"])


@dataclass(slots=True)
class Client:
    """One request as its sender knows it; without a future it was refused at once."""

    guilty: bool
    gave_up: bool
    future: Future[Any] | None = None


def tally(clients: Sequence[Client], rows: Sequence[RequestRecord]) -> Tally:
    """Count what the senders saw, and what was computed for nobody."""
    seen = Tally(sent=len(clients))
    for client in clients:
        error = _error(client)
        if error is None and not client.gave_up:
            seen.right += 1
        elif client.guilty:
            seen.guilty_failed += 1
        elif isinstance(error, (QueueFull, TimeoutError)):
            seen.refused += 1
        elif not client.gave_up:
            seen.innocent_failed += 1
    answered = [row.latency_s for row in rows if row.outcome == "ok"]
    seen.slowest_ms = 1000 * max(answered, default=0.0)
    seen.in_vain = sum(row.outcome == "cancelled" and row.step >= 0 for row in rows)
    return seen


def _error(client: Client) -> BaseException | None:
    if client.future is None:
        return QueueFull("refused", "")
    if client.future.cancelled():
        return None
    if not client.future.done():
        return TimeoutError("never answered")
    return client.future.exception()
