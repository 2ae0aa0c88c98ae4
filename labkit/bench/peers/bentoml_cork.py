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
NO_LIMIT_MS = 10_000


class _Shed(Exception):
    """The dispatcher gave a request up."""


def main() -> None:
    """Answer the bench's requests."""
    serve({"open": _open_loop, "open with a limit": _open_loop, "burst": _no_op})


def _open_loop(at_s: Sequence[float], slo_ms: int = NO_LIMIT_MS) -> dict[str, Any]:
    """The synthetic service under an open load. The dispatcher trains anew in each run, during the warm-up.

    It gives up what it expects to answer later than `slo_ms`; such a request counts as not answered.
    """
    service = Service()
    report = asyncio.run(_with(service, lambda call: drive_calls(_answered(call), at_s), slo_ms))
    return {**report, "batch_rows": service.batch_rows}


def _answered(call: Any) -> Any:
    """`call`, raising where the dispatcher answers for the model."""

    async def answered(number: int) -> Any:
        answer = await call(number)
        if answer is None:
            raise _Shed
        return answer

    return answered


def _no_op(requests: int, in_flight: int) -> dict[str, Any]:
    """Its own cost. The model is a coroutine, its cheapest form: no thread is involved."""

    async def answer(rows: Sequence[Any]) -> Sequence[Any]:
        return rows

    return asyncio.run(_with(answer, lambda call: burst(call, requests, in_flight)))


async def _with(model: Any, use: Any, limit_ms: int = NO_LIMIT_MS) -> dict[str, Any]:
    from bentoml._internal.marshal.dispatcher import CorkDispatcher  # type: ignore[import-not-found]

    dispatcher = CorkDispatcher(limit_ms, CAP, fallback=lambda: None, get_batch_size=lambda row: 1)
    try:
        report: dict[str, Any] = await use(dispatcher(model))
        return report
    finally:
        dispatcher.shutdown()
