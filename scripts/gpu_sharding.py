"""Sharding on a device: stages there and on the CPU, streams, a pinned hop, and a stage that is killed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from labkit.devices import Device, synchronize
from labkit.sharding import Pipeline
from labkit.sharding.lane import Lane

__all__ = ["CHECKS"]

BLOCKS, WIDTH, ROWS = 6, 256, 32
REQUESTS = 24
SIZES = (1 << 20, 2 << 20, 4 << 20)
HOPS = 20
ANSWER_LIMIT_S = 60.0


def _layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()).eval() for _ in range(BLOCKS)]


def _payloads() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(ROWS, WIDTH, generator=generator) for _ in range(REQUESTS)]


def _run(pipeline: Pipeline) -> float:
    """Send all payloads at once and compare the answers with the model's on the CPU; return the largest error."""
    payloads, model = _payloads(), nn.Sequential(*_layers())
    futures = [pipeline.submit(payload) for payload in payloads]
    answers = [future.result(ANSWER_LIMIT_S).cpu() for future in futures]
    with torch.inference_mode():
        error = max(float((got - model(given)).abs().max()) for got, given in zip(answers, payloads, strict=True))
    assert error < 1e-3, f"the answers differ by {error:.2e}"
    return error


def mixed(device: Device) -> dict[str, Any]:
    """Three stages, on the device, on the CPU and on the device again, carried by processes and by threads."""
    found: dict[str, Any] = {}
    for carrier in ("process", "thread"):
        places = [device.id, "cpu", device.id]
        with Pipeline(_layers(), boundaries=(0, 2, 4, 6), devices=places, carrier=carrier) as pipeline:
            _run(pipeline)  # kernels are loaded
            begun_s = time.perf_counter()
            error = _run(pipeline)
            per_s = REQUESTS / (time.perf_counter() - begun_s)
            where = [stage.device for stage in pipeline.snapshot().stages]
        assert where == places, f"the stages ran on {where}"
        found[carrier] = {"max_error": error, "requests_per_s": per_s}
    return found


def streams(device: Device) -> dict[str, Any]:
    """Two stages on one device, each with a stream of its own: right answers, and steps that overlap in time."""
    lanes = [Lane(device.id), Lane(device.id)]
    handles = [_current_stream(device, lane) for lane in lanes]
    if device.kind == "cuda":
        assert len({*handles, torch.cuda.default_stream(device.id).cuda_stream}) == 3, "two lanes share a stream"
    with Pipeline(_layers(), boundaries=(0, 3, 6), devices=[device.id] * 2, carrier="thread") as pipeline:
        _run(pipeline)
        _, cursor = pipeline.records.steps_since(0)
        error = _run(pipeline)
        steps, _ = pipeline.records.steps_since(cursor)
    first, second = ([step for step in steps if step.stage == stage] for stage in ("stage0", "stage1"))
    overlapping = sum(
        any(one.started_s < two.finished_s and two.started_s < one.finished_s for two in second) for one in first
    )
    return {"max_error": error, "streams": handles, "steps": len(first), "overlapping_steps": overlapping}


def _current_stream(device: Device, lane: Lane) -> int | None:
    with lane.entered():
        return torch.cuda.current_stream(device.id).cuda_stream if device.kind == "cuda" else None


def hop(device: Device) -> dict[str, Any]:
    """One hop from the device to the CPU and one back: from pinned memory, from pageable, and through the pipeline."""
    found: dict[str, Any] = {}
    for size_bytes in SIZES:
        there = torch.randn(size_bytes // 4, device=device.id)
        row = {"pageable": _copies(device, there, pinned=False)}
        if device.kind == "cuda":
            row["pinned"] = _copies(device, there, pinned=True)
        for carrier in ("process", "thread"):
            row[f"pipeline, {carrier}"] = _through(device, there.cpu(), carrier)
        found[f"{size_bytes >> 20} MiB, ms"] = row
    return found


def _copies(device: Device, there: torch.Tensor, *, pinned: bool) -> dict[str, float]:
    """Median milliseconds of a copy to the host and of one to the device, each waited for."""
    host = torch.empty(there.shape, pin_memory=pinned)
    back = torch.empty_like(there)
    found = {"to_host": _median_ms(device, host, there), "to_device": _median_ms(device, back, host)}
    assert torch.equal(back.cpu(), there.cpu()), "the copy that came back differs"
    return found


def _median_ms(device: Device, target: torch.Tensor, source: torch.Tensor) -> float:
    took_s = []
    for _ in range(HOPS):
        begun_s = time.perf_counter()
        target.copy_(source, non_blocking=True)
        synchronize(device.id)
        took_s.append(time.perf_counter() - begun_s)
    return statistics.median(took_s) * 1000


def _through(device: Device, value: torch.Tensor, carrier: str) -> dict[str, float]:
    """Half of the way from the sender through a stage on the device, which hands its input back, and back."""
    rows, took_s = value[None], []
    with Pipeline([nn.Identity()], devices=[device.id], carrier=carrier) as pipeline:
        for _ in range(HOPS):
            begun_s = time.perf_counter()
            back = pipeline.submit(rows).result(ANSWER_LIMIT_S).cpu()
            took_s.append(time.perf_counter() - begun_s)
    assert torch.equal(back, rows), "what came back differs"
    return {"one_way": statistics.median(took_s) / 2 * 1000}


def loss(device: Device) -> dict[str, Any]:
    """Kill the worker of a stage on the device while requests are under way: all are answered, and rightly."""
    places = [device.id, "cpu"]
    with Pipeline(_layers(), boundaries=(0, 3, 6), devices=places, spares=1) as pipeline:
        _run(pipeline)
        payloads, model = _payloads(), nn.Sequential(*_layers())
        futures = [pipeline.submit(payload) for payload in payloads[:4]]
        begun_s = time.perf_counter()
        pipeline.inject(0, "kill")
        futures += [pipeline.submit(payload) for payload in payloads[4:]]
        answers = [future.result(ANSWER_LIMIT_S) for future in futures]
        answered_s = time.perf_counter() - begun_s
        losses = pipeline.snapshot().losses
    with torch.inference_mode():
        error = max(float((got - model(given)).abs().max()) for got, given in zip(answers, payloads, strict=True))
    assert error < 1e-3, f"the answers differ by {error:.2e}"
    assert losses == 1, f"{losses} workers were lost"
    return {"max_error": error, "all_answered_after_s": answered_s}


CHECKS: dict[str, Callable[[Device], dict[str, Any]]] = {
    "sharding: stages on the device and the CPU": mixed,
    "sharding: streams": streams,
    "sharding: one hop": hop,
    "sharding: a killed stage": loss,
}
