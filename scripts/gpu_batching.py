"""The batcher on a device: right answers from staged rows, graphs for each size, and a real out-of-memory recovery."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from labkit import devices
from labkit.batching import Batcher, Decision, Run, View, WaitUntil
from labkit.devices import Device
from labkit.engine import Place

__all__ = ["CHECKS"]

SHAPE = (6, 64, 64)  # 96 KiB as float32: large enough to be copied to the device early
ROWS = 64
SIZES = (1, 2, 4, 8)
FITS = 8


class _Staged:
    """Writes each payload (a number) into staging memory, as a large row."""

    def __call__(self, payload: int) -> torch.Tensor:
        return torch.full(SHAPE, float(payload))

    def into(self, payload: int, place: Place) -> torch.Tensor:
        row = place(SHAPE, torch.float32)
        return row.fill_(float(payload))


def _network(device: Device) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(6, 16, 3, 2, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, 2, 1), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval().to(device.id)


def _expected(network: torch.nn.Module, device: Device) -> torch.Tensor:
    rows = torch.stack([_Staged()(number) for number in range(ROWS)]).to(device.id)
    with torch.inference_mode():
        return network(rows).cpu()


def staged(device: Device) -> dict[str, Any]:
    """Rows from the pinned pool, copied early: right answers, and what was copied on the host."""
    network = _network(device)
    with Batcher(network, prepare=_Staged(), device=device.id, max_rows=8) as batcher:
        answers = [future.result(60) for future in [batcher.submit(number) for number in range(ROWS)]]
        pool = batcher.snapshot().pool
        copied = sum(step.copied_bytes for step in batcher.records.steps())
    error = float((torch.stack(answers) - _expected(network, device)).abs().max())
    assert error < 1e-3, f"the answers differ by {error:.2e}"
    assert pool is not None
    assert pool.peak_bytes > 0, "no row went through the pool"
    return {"max_error": error, "copied_bytes": copied, "pool_peak_bytes": pool.peak_bytes, "overflows": pool.overflows}


def graphs(device: Device) -> dict[str, Any]:
    """One CUDA graph for each allowed size: right answers, and the time of a batch beside that without graphs."""
    network = _network(device)
    expected = _expected(network, device)
    times_ms: dict[str, list[float]] = {"graphs": [], "plain": []}
    for name in ("graphs", "plain", "plain", "graphs"):
        with Batcher(network, prepare=_Staged(), device=device.id, max_rows=8, sizes=SIZES) as batcher:
            if name == "graphs":
                batcher.warmup(0)
            answers = [future.result(60) for future in [batcher.submit(number) for number in range(ROWS)]]
            steps = [step for step in batcher.records.steps() if step.stage == "compute"]
        error = float((torch.stack(answers) - expected).abs().max())
        assert error < 1e-3, f"{name}: the answers differ by {error:.2e}"
        assert all(step.rows + step.padded_rows in SIZES for step in steps)
        times_ms[name] += [step.duration_s * 1000 for step in steps[len(steps) // 2 :]]
    return {f"{name}_median_ms": sorted(times)[len(times) // 2] for name, times in times_ms.items()}


def out_of_memory(device: Device) -> dict[str, Any]:
    """A model whose batches above eight rows really do not fit: all are answered, and a cap is learned."""
    row_bytes = devices.memory_free_bytes(device.id) // (FITS + 2) if device.kind != "cpu" else 1

    def model(rows: torch.Tensor) -> torch.Tensor:
        # The allocator itself refuses: on an accelerator for want of memory, on the host for want of addresses.
        size = 2**60 if device.kind == "cpu" and len(rows) > FITS else len(rows) * row_bytes
        torch.empty(size, dtype=torch.uint8, device=device.id)
        return rows * 2

    with Batcher(model, device=device.id, max_rows=32, policy=_AllAtOnce(32)) as batcher:
        futures = [batcher.submit(torch.full((4,), float(number))) for number in range(32)]
        answers = [future.result(120)[0].item() for future in futures]
        notes = batcher.snapshot().notes
        outcomes = [step.outcome for step in batcher.records.steps()]
    assert answers == [2.0 * number for number in range(32)], "an answer is wrong"
    assert "out_of_memory" in outcomes, "memory did not run out"
    assert notes, "no cap was learned"
    devices.release()
    return {"steps": outcomes, "notes": list(notes)}


class _AllAtOnce:
    """Waits until all rows are there, so that the first batch is too large for certain."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._ran = False

    def decide(self, view: View) -> Decision:
        self._ran = self._ran or view.rows >= self._rows
        return Run(view.rows) if self._ran else WaitUntil(time.perf_counter() + 1.0)


CHECKS: dict[str, Callable[[Device], dict[str, Any]]] = {
    "batching: staged rows": staged,
    "batching: graphs": graphs,
    "batching: out of memory": out_of_memory,
}
