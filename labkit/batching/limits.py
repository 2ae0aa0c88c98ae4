"""The batcher's limits, and who is let in."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from labkit.errors import QueueFull, SettingError, require

__all__ = ["Admission", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Every number that bounds a batcher; all of them can be changed while it runs.

    A batch carries at most `max_rows` rows and costs at most `max_cost`. If `sizes` is given, batches are padded up to
    the next of them (for models that want few shapes). At most `max_queue` requests and `max_queue_bytes` of their
    payloads wait. One priority level is worth `ageing_s` of waiting. `timeout_s` is the total time limit of requests
    that bring none. With `isolate`, a failing batch is taken apart to find the guilty rows.
    """

    max_rows: int = 32
    max_cost: float = math.inf
    sizes: tuple[int, ...] = ()
    max_queue: int = 1024
    max_queue_bytes: float = math.inf
    ageing_s: float = 1.0
    timeout_s: float = math.inf
    isolate: bool = True

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_queue"):
            value = getattr(self, name)
            require(
                isinstance(value, int) and value >= 1, f"{name} is {value!r}; it must be at least 1", "Give a count."
            )
        for name in ("max_cost", "max_queue_bytes", "timeout_s"):
            value = getattr(self, name)
            require(value > 0, f"{name} is {value}; it must be positive", "Leave it out for no limit.")
        require(
            0 <= self.ageing_s < math.inf,
            f"ageing_s is {self.ageing_s}; it must be finite and not negative",
            "Give seconds per level; a large number makes priorities strict.",
        )
        require(
            list(self.sizes) == sorted(set(self.sizes)) and all(size >= 1 for size in self.sizes),
            f"sizes is {self.sizes}; it must be rising and positive",
            "Give for example sizes=(1, 4, 16).",
        )
        if self.max_queue < self.cap_rows:
            warnings.warn(
                f"max_queue is {self.max_queue}, so no batch reaches {self.cap_rows} rows; raise max_queue",
                stacklevel=4,
            )

    @property
    def cap_rows(self) -> int:
        """The most rows of one batch: `max_rows`, or the largest allowed size if that is smaller."""
        return min(self.max_rows, self.sizes[-1]) if self.sizes else self.max_rows

    def size_for(self, rows: int) -> int:
        """The allowed size that carries `rows`.

        >>> Limits(sizes=(1, 4, 16)).size_for(3)
        4
        """
        return next((size for size in self.sizes if size >= rows), rows)


class Admission:
    """Counts what waits, and refuses at once what the limits have no room for. Its owner locks it.

    `retry_after_s` says how long one who is refused should stay away.
    """

    def __init__(self, retry_after_s: Callable[[], float]) -> None:
        self._retry_after_s = retry_after_s
        self.rows = 0
        self.payload_bytes = 0

    def enter(self, rows: int, payload_bytes: int, limits: Limits) -> None:
        """Let all `rows` of a request in or none; raises `QueueFull`, or `SettingError` if they could never fit."""
        if self.rows + rows > limits.max_queue or self.payload_bytes + payload_bytes > limits.max_queue_bytes:
            raise self._refusal(rows, payload_bytes, limits)
        self.rows += rows
        self.payload_bytes += payload_bytes

    def _refusal(self, rows: int, payload_bytes: int, limits: Limits) -> QueueFull | SettingError:
        if rows > limits.max_queue or payload_bytes > limits.max_queue_bytes:
            return SettingError(
                f"a request of {rows} rows and {payload_bytes} bytes can never fit a queue of {limits.max_queue} rows "
                f"and {limits.max_queue_bytes:g} bytes",
                "Send it in parts or raise the limit.",
            )
        problem = f"{self.rows} requests wait; max_queue is {limits.max_queue}"
        if self.rows + rows <= limits.max_queue:
            problem = f"{self.payload_bytes} bytes wait and {payload_bytes} came"
            problem += f"; max_queue_bytes is {limits.max_queue_bytes:g}"
        after_s = self._retry_after_s()
        return QueueFull(problem, f"Try again in {after_s * 1000:.0f} ms.", after_s)

    def leave(self, rows: int, payload_bytes: int) -> None:
        """Note that `rows` of so many bytes wait no longer."""
        self.rows -= rows
        self.payload_bytes -= payload_bytes
