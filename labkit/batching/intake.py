"""Turns a request's payload into a row: prepared, padded, placed in staging memory, assigned to a bucket."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch

from labkit.batching.collate import Lengths, default_key
from labkit.batching.faults import detached
from labkit.batching.pool import StagingPool
from labkit.batching.request import DONE, Request
from labkit.engine import Prepare
from labkit.errors import EngineError, PrepareFailed, SettingError, require

__all__ = ["Intake", "explained"]


class Intake:
    """How rows are made.

    `prepare` maps payload -> row; one that has `into(payload, place)` writes its row straight into `pool`. `pad` gives
    rows of variable length the length of their bucket. `key(row)` names the bucket, `cost(row)` the row's share of the
    batch's cost budget `max_cost`.
    """

    def __init__(
        self,
        pool: StagingPool,
        *,
        prepare: Callable[[Any], Any] | None,
        pad: Lengths | None,
        key: Callable[[Any], Hashable] | None,
        cost: Callable[[Any], float] | None,
        max_cost: float,
    ) -> None:
        self.pool = pool
        self.max_cost = max_cost
        self._prepare = prepare
        # Asked once: a protocol check costs more than everything else that happens to a small request here.
        self._into = prepare.into if isinstance(prepare, Prepare) else None
        require(
            self._into is None or pad is None,
            "pad is given, but prepare writes its rows into staging memory itself (it has `into`)",
            "Let `into` pad its rows, or wrap it in a plain function.",
        )
        self._pad = pad
        self._key = key or default_key
        self._cost = cost
        # Whether a payload is its row already, and nobody need be asked about it.
        self.plain = not (prepare or pad or key or cost)

    def make(self, request: Request) -> None:
        """Give `request` its row, unless it is withdrawn; raises what the user's functions raise."""
        payload = request.row
        # In this order: who withdraws a request first says so and then takes its row away.
        if request.state is DONE:
            return
        request.row = row = self._row(request, payload)
        request.key = self._key(row)
        hash(request.key)
        if self._cost is not None:
            request.cost = self._checked(self._cost(row))

    def adopt(self, requests: Sequence[Request]) -> None:
        """Let payloads be rows, where all is `plain`; they are ready the moment they arrive."""
        for request in requests:
            request.key = default_key(request.row)
            request.ready_s = request.arrived_s

    def _row(self, request: Request, payload: Any) -> Any:
        if self._into is not None:
            return self._at_its_place(request, self._into(payload, partial(self._place, request)))
        row = self._prepare(payload) if self._prepare else payload
        return self._padded(request, torch.as_tensor(row)) if self._pad else row

    def _at_its_place(self, request: Request, row: Any) -> Any:
        slot = request.slot
        if slot is None or row is slot.tensor:
            return row
        # Another tensor. As a view of the slot it would be overwritten when the slot is used again.
        own = row.clone()
        request.copied_bytes = own.nbytes
        request.slot = None
        slot.release()
        return own

    def _place(
        self, request: Request, shape: tuple[int, ...], dtype: torch.dtype, real_units: int | None = None
    ) -> torch.Tensor:
        if request.slot is not None:
            request.slot.release()
        request.slot = self.pool.acquire(shape, dtype)
        request.computed_units = shape[0] if real_units is not None else 0
        request.real_units = real_units or 0
        return request.slot.tensor

    def _padded(self, request: Request, row: torch.Tensor) -> torch.Tensor:
        assert self._pad is not None
        edge = self._pad.edge(row.shape[0])
        placed = self._place(request, (edge, *row.shape[1:]), row.dtype, row.shape[0])
        placed[: row.shape[0]] = row
        placed[row.shape[0] :] = self._pad.value
        request.copied_bytes = row.nbytes
        return placed

    def _checked(self, cost: float) -> float:
        if 0 <= cost <= self.max_cost:
            return cost
        raise SettingError(
            f"a row costs {cost:g}; one batch may cost {self.max_cost:g}", "Make the row smaller or raise max_cost."
        )


def explained(error: BaseException) -> EngineError:
    """What the sender of a payload that could not be prepared is told."""
    detached(error)
    if isinstance(error, EngineError):
        return error
    told = PrepareFailed(
        f"preprocessing raised {type(error).__name__}: {error}", "The cause is attached; other requests go on."
    )
    told.__cause__ = error
    return told
