"""BentoML's batching queue, `CorkDispatcher`, in-process: the part of BentoML that batches, without its server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .coroutines import burst, drive_calls
from .protocol import serve
from .service import CAP, Service

__all__ = ["main"]

# Far above every latency here, so that it never sheds a request by its estimate.
MAX_LATENCY_MS = 10_000


def main() -> None:
    """Answer the bench's requests."""
    serve({"open": _open_loop, "burst": _no_op})


def _open_loop(at_s: Sequence[float]) -> dict[str, Any]:
    """The synthetic service under an open load. The dispatcher trains anew in each run, during the warm-up."""
    service = Service()
    report = asyncio.run(_with(service, lambda call: drive_calls(call, at_s)))
    return {**report, "batch_rows": service.batch_rows}


def _no_op(requests: int, in_flight: int) -> dict[str, Any]:
    """Its own cost. The model is a coroutine, its cheapest form: no thread is involved."""

    async def answer(rows: Sequence[Any]) -> Sequence[Any]:
        return rows

    return asyncio.run(_with(answer, lambda call: burst(call, requests, in_flight)))


async def _with(model: Any, use: Any) -> dict[str, Any]:
    from bentoml._internal.marshal.dispatcher import CorkDispatcher  # type: ignore[import-not-found]

    dispatcher = CorkDispatcher(MAX_LATENCY_MS, CAP, fallback=lambda: None, get_batch_size=lambda row: 1)
    try:
        report: dict[str, Any] = await use(dispatcher(model))
        return report
    finally:
        dispatcher.shutdown()
