"""The package `batched`, in-process: its asyncio decorator with its default window."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .coroutines import burst, drive_calls
from .protocol import serve
from .service import CAP, WAIT_MS, Service

__all__ = ["main"]


def main() -> None:
    """Answer the bench's requests."""
    serve({"open": _open_loop, "burst": _no_op})


def _open_loop(at_s: Sequence[float]) -> dict[str, Any]:
    """The synthetic service under an open load; `batched` runs a plain function in a thread."""
    service = Service()

    # A function, because `batched` looks into its model's signature.
    def model(rows: list[Any]) -> list[Any]:
        return service(rows)

    report = asyncio.run(_with(model, lambda call: drive_calls(call, at_s)))
    return {**report, "batch_rows": service.batch_rows}


def _no_op(requests: int, in_flight: int) -> dict[str, Any]:
    """Its own cost. The model is a coroutine, its cheapest form: no thread is involved."""

    async def model(rows: list[Any]) -> list[Any]:
        return rows

    return asyncio.run(_with(model, lambda call: burst(call, requests, in_flight)))


async def _with(model: Any, use: Any) -> dict[str, Any]:
    from batched import aio  # type: ignore[import-not-found]

    report: dict[str, Any] = await use(aio.dynamically(model, batch_size=CAP, timeout_ms=float(WAIT_MS)))
    return report
