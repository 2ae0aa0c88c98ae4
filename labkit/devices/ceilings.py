"""The physical limits of a device, measured: how fast it copies memory and multiplies matrices.

Every bound that labkit shows later stands on these two numbers. They are the best of many short repeats, kept in the
cache folder for this machine, this PyTorch and this number of threads. A CPU that others kept busy meanwhile shows less
than it can, so such numbers are measured again by the next process that asks, and the better ones stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from labkit.devices.attached import Device, find, synchronize
from labkit.devices.folders import cache_dir
from labkit.devices.host import Busy
from labkit.devices.memory import memory_free_bytes
from labkit.devices.versions import versions
from labkit.errors import MeasureError, Unavailable

__all__ = ["Ceilings", "ceilings"]

_DTYPES = ("float32", "bfloat16", "float16")
_BUDGET_S = 0.35  # for each of the four measurements
_QUIET = 0.1  # up to this share of the cores, other processes do not matter
_SAMPLE_S = 0.01  # one timed sample lasts at least this long, so that launching and the clock do not matter
_measured_here: set[Path] = set()  # by this process; once is enough, however busy the machine is


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the device reached at best.

    A copy counts each byte twice: once read, once written. A product of [n, n] matrices counts 2 n**3 operations.
    A data type that the device cannot multiply is missing from `matmul_flop_per_s`. `others_share` is the share of the
    cores that other processes used meanwhile, `measured_at` is UTC (ISO 8601).
    """

    device_id: str
    device_name: str
    copy_bytes_per_s: float
    matmul_flop_per_s: Mapping[str, float]
    threads: int
    others_share: float
    measured_at: str
    versions: Mapping[str, str]

    @property
    def disturbed(self) -> bool:
        """Whether others kept the CPU so busy that it may be able to do more."""
        return self.device_id == "cpu" and self.others_share > _QUIET


def ceilings(device_id: str, *, remeasure: bool = False) -> Ceilings:
    """Return the device's ceilings, measured now (under two seconds) or read from the cache folder.

    The machine should be idle while they are measured; `remeasure=True` replaces what is kept. float32 products run
    with the precision that `torch.set_float32_matmul_precision` has set, and are kept apart by it.

    Raises `UnknownName` for a device that is not attached.
    """
    device = find(device_id)
    file = _cache_file(device)
    kept = None if remeasure or file is None else _read(file)
    if kept is not None and (not kept.disturbed or file in _measured_here):
        return kept
    fresh = _measure(device) if kept is None else _better(_measure(device), kept)
    if file is not None:
        _measured_here.add(file)
        _write(file, fresh)
    return fresh


def _better(fresh: Ceilings, kept: Ceilings) -> Ceilings:
    """Take the higher of each two numbers; the rest is told by the measurement made now."""
    rates = {**kept.matmul_flop_per_s, **fresh.matmul_flop_per_s}
    return replace(
        fresh,
        copy_bytes_per_s=max(fresh.copy_bytes_per_s, kept.copy_bytes_per_s),
        matmul_flop_per_s={dtype: max(rate, kept.matmul_flop_per_s.get(dtype, 0.0)) for dtype, rate in rates.items()},
    )


def _measure(device: Device) -> Ceilings:
    since = Busy.now()
    rates = {dtype: _matmul_flop_per_s(device.id, dtype) for dtype in _DTYPES}
    return Ceilings(
        device_id=device.id,
        device_name=device.name,
        copy_bytes_per_s=_copy_bytes_per_s(device.id),
        matmul_flop_per_s={dtype: rate for dtype, rate in rates.items() if rate > 0},
        threads=torch.get_num_threads(),
        others_share=round(since.others_share(), 3),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=dict(versions()),
    )


@torch.inference_mode()
def _copy_bytes_per_s(device_id: str) -> float:
    """Copy between two buffers that no cache holds: 64 MiB on the CPU, up to 512 MiB elsewhere."""
    largest = 2**26 if device_id == "cpu" else 2**29
    size = min(largest, memory_free_bytes(device_id) // 8)
    if size < 2**20:
        raise MeasureError(
            f"{device_id} has too little free memory to measure a copy", "Call labkit.devices.release()."
        )
    source = torch.ones(size, dtype=torch.uint8, device=device_id)
    target = torch.empty_like(source)
    return 2 * size / _best_s(lambda: target.copy_(source), device_id, time.perf_counter() + _BUDGET_S)


@torch.inference_mode()
def _matmul_flop_per_s(device_id: str, dtype_name: str) -> float:
    """Multiply ever larger matrices while the time lasts, and keep the best rate; 0 where the type is not supported."""
    deadline_s = time.perf_counter() + _BUDGET_S
    best, size = 0.0, 256
    try:
        while size <= 8192:
            one_s = _best_matmul_s(device_id, getattr(torch, dtype_name), size, deadline_s)
            best = max(best, 2 * size**3 / one_s)
            if time.perf_counter() + 2 * 8 * one_s > deadline_s:  # twice (warm-up, sample) a product 8 times as large
                break
            size *= 2
    except (RuntimeError, NotImplementedError, TypeError):
        return best
    return best


def _best_matmul_s(device_id: str, dtype: torch.dtype, size: int, deadline_s: float) -> float:
    # Random numbers: zeros take less power, and a card that is limited by power would look faster than it is.
    left = torch.randn(size, size, device=device_id).to(dtype)
    right = torch.randn(size, size, device=device_id).to(dtype)
    product = torch.empty_like(left)
    share_s = min(deadline_s, time.perf_counter() + _BUDGET_S / 3)
    return _best_s(lambda: torch.mm(left, right, out=product), device_id, share_s)


def _best_s(work: Callable[[], object], device_id: str, deadline_s: float) -> float:
    """Return the seconds of one `work()`: the shortest sample until the deadline, each of many calls in a row."""
    _sample_s(work, 1, device_id)  # the first call pays for loading and choosing the kernel
    one_s = _sample_s(work, 1, device_id)
    calls = max(1, int(_SAMPLE_S / one_s))
    while time.perf_counter() < deadline_s:
        one_s = min(one_s, _sample_s(work, calls, device_id))
    return one_s


def _sample_s(work: Callable[[], object], calls: int, device_id: str) -> float:
    synchronize(device_id)
    started_s = time.perf_counter()
    for _ in range(calls):
        work()
    synchronize(device_id)
    return max(time.perf_counter() - started_s, 1e-9) / calls


def _cache_file(device: Device) -> Path | None:
    """Name the file after everything that the numbers depend on; None where nothing can be kept."""
    grounds = (
        platform.node(),
        device.name,
        str(device.memory_bytes),
        str(torch.__version__),
        str(torch.get_num_threads()),
        torch.get_float32_matmul_precision(),
    )
    digest = hashlib.sha256("\n".join(grounds).encode()).hexdigest()[:16]
    try:
        return cache_dir() / "ceilings" / f"{device.id.replace(':', '-')}-{digest}.json"
    except Unavailable:
        return None


def _read(file: Path) -> Ceilings | None:
    try:
        return Ceilings(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # missing, cut short, or written by another version: measure again
        return None


def _write(file: Path, fresh: Ceilings) -> None:
    """Keep them if the folder allows it; a reader never sees half a file."""
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(asdict(fresh), indent=2), encoding="utf-8")
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
