"""Run labkit's GPU paths and print one JSON; see gpu_check.sh.

A check is a function that takes the device and returns what it found, by name; it raises when something is wrong.
`CHECKS` is the list: add a line to add a check. One that fails is written down and the others still run; one that
hangs is written down when the time is up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from labkit import devices
from labkit.devices import Device
from labkit.errors import Unavailable
from scripts import gpu_batching, gpu_sharding

__all__ = ["CHECKS", "LIMIT_S", "QUICK", "main"]

LIMIT_S = 330.0  # all checks together; what is left of six minutes is for starting and ending
QUICK = False  # a rehearsal: checks may do less

Check = Callable[[Device], dict[str, Any]]


def ceilings(device: Device) -> dict[str, Any]:
    """Measure copy bandwidth and the matrix product's rate per data type, anew."""
    found = devices.ceilings(device.id, remeasure=True)
    missing = set(device.dtypes) - set(found.matmul_flop_per_s)
    assert not missing, f"no rate for {sorted(missing)}"
    return {
        "copy_bytes_per_s": found.copy_bytes_per_s,
        "matmul_flop_per_s": dict(found.matmul_flop_per_s),
        "others_share": found.others_share,
    }


def products(device: Device) -> dict[str, Any]:
    """Multiply matrices in each data type and compare with float64 on the CPU."""
    left, right = (torch.randn(256, 256, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    errors = {}
    for name in device.dtypes:
        dtype = getattr(torch, name)
        exact = left.to(dtype).double() @ right.to(dtype).double()
        got = (left.to(device.id, dtype) @ right.to(device.id, dtype)).cpu().double()
        errors[name] = float((got - exact).abs().max() / exact.abs().max())
        allowed = 8 * torch.finfo(dtype).eps
        assert errors[name] < allowed, f"{name}: relative error {errors[name]:.2e}, allowed {allowed:.2e}"
    return {"relative_error": errors}


def copies(device: Device) -> dict[str, Any]:
    """Copy from pinned memory to the device and back without waiting in between, and compare."""
    pinned = device.kind == "cuda"
    source = torch.arange(1 << 20, dtype=torch.float32)
    source = source.pin_memory() if pinned else source
    there = source.to(device.id, non_blocking=True)
    back = torch.empty_like(source, pin_memory=pinned).copy_(there * 2, non_blocking=True)
    devices.synchronize(device.id)
    assert torch.equal(back, source * 2), "the copy that came back differs"
    return {"pinned": pinned, "bytes": source.nbytes}


def memory(device: Device) -> dict[str, Any]:
    """Take 256 MiB, let go of it, and see that it is free again after `release`."""
    size = 1 << 28
    devices.release()
    before = devices.memory_free_bytes(device.id)
    block = torch.ones(size, dtype=torch.uint8, device=device.id)
    devices.synchronize(device.id)
    during = devices.memory_free_bytes(device.id)
    del block
    freed = devices.release()
    after = devices.memory_free_bytes(device.id)
    if device.kind != "cpu":  # a host's free memory is everybody's
        assert before - during >= size, f"{size} bytes were taken, {before - during} less are free"
        assert freed >= size, f"release() gave back {freed} of {size} bytes"
    return {"free_before_bytes": before, "free_during_bytes": during, "free_after_bytes": after, "freed_bytes": freed}


def share(device: Device) -> dict[str, Any]:
    """Let another process with LABKIT_GPU_FRACTION=0.1 ask for a fifth of the memory; it must be refused."""
    if device.kind == "cpu":
        return {"not_run": "the CPU has no share to grant"}
    code = (
        f"import torch; from labkit import devices; device = devices.find({device.id!r})\n"
        "try: torch.empty(device.memory_bytes // 5, dtype=torch.uint8, device=device.id)\n"
        "except torch.OutOfMemoryError: print('refused')"
    )
    setting = {**os.environ, "LABKIT_GPU_FRACTION": "0.1"}
    done = subprocess.run([sys.executable, "-c", code], env=setting, capture_output=True, text=True, timeout=120)
    assert "refused" in done.stdout, f"not refused: {done.stdout} {done.stderr[-500:]}"
    return {"refused": True}


def lease(device: Device) -> dict[str, Any]:
    """Hold the device, and see that a second one who asks has to wait."""
    with devices.lease(device.id, timeout_s=60) as held:
        try:
            with devices.lease(device.id, timeout_s=0.1):
                raise AssertionError("two hold the device at once")
        except Unavailable:
            return {"waited_s": held.waited_s}


CHECKS: dict[str, Check] = {
    "ceilings": ceilings,
    "products": products,
    "copies": copies,
    "memory": memory,
    "share": share,
    "lease": lease,
    **gpu_batching.CHECKS,
    **gpu_sharding.CHECKS,
}


class Protocol:
    """The JSON while it grows; whoever finishes first, the checks or the clock, prints it."""

    def __init__(self, device: Device, file: Path | None) -> None:
        self.file = file
        self.started_s = time.perf_counter()
        self.running = ""
        self.checks: list[dict[str, Any]] = []
        self._closed = threading.Lock()
        self.head = {
            "device": asdict(device),
            "attached": [asdict(each) for each in devices.attached()],
            "versions": dict(devices.versions()),
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": QUICK,
        }

    def run(self, name: str, check: Check, device: Device) -> None:
        """Run one check and write down what it found or what was wrong."""
        self.running, started_s = name, time.perf_counter()
        print(f"{name} ...", file=sys.stderr)
        try:
            row = {"name": name, "ok": True, "values": check(device)}
        except Exception as error:
            text = "".join(traceback.format_exception(error)[-3:])
            row = {"name": name, "ok": False, "error": f"{type(error).__name__}: {error}", "traceback": text}
            devices.release()  # what the failed check still holds must not starve the next
        self.checks.append({**row, "seconds": round(time.perf_counter() - started_s, 3)})

    def close(self, *, late: bool = False) -> int:
        """Print the JSON once; return the exit code, 0 if every check was well."""
        if not self._closed.acquire(blocking=False):
            return 1
        checks = list(self.checks)
        if late:
            checks.append({"name": self.running, "ok": False, "error": f"still running after {LIMIT_S:g} s"})
        measured = next((row["values"] for row in checks if row["name"] == "ceilings" and row["ok"]), None)
        wall_s = round(time.perf_counter() - self.started_s, 3)
        text = json.dumps({**self.head, "ceilings": measured, "checks": checks, "wall_s": wall_s}, indent=2)
        print(text, flush=True)
        if self.file is not None:
            self.file.write_text(text + "\n", encoding="utf-8")
        return 0 if all(row["ok"] for row in checks) else 1


def main(arguments: list[str] | None = None) -> int:
    """Run the checks of the command line, all by default; return the exit code."""
    global QUICK
    parser = argparse.ArgumentParser(description="Run labkit's GPU paths and print one JSON.")
    parser.add_argument("--device", help="which device; default: the first accelerator, or the CPU as a rehearsal")
    parser.add_argument("--quick", action="store_true", help="a rehearsal that does less")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there as well")
    parser.add_argument("--only", nargs="+", choices=sorted(CHECKS), help="run only these checks")
    chosen = parser.parse_args(arguments)
    QUICK = chosen.quick
    device = devices.find(chosen.device) if chosen.device else devices.best()
    protocol = Protocol(device, chosen.json)
    watch = threading.Timer(LIMIT_S, lambda: os._exit(protocol.close(late=True)))
    watch.daemon = True
    watch.start()
    for name, check in CHECKS.items():
        if not chosen.only or name in chosen.only:
            protocol.run(name, check, device)
    watch.cancel()
    return protocol.close()


if __name__ == "__main__":
    sys.exit(main())
