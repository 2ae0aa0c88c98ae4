"""Which devices this machine has, and how to wait for one.

Accelerators come from `torch.accelerator`, so CUDA, ROCm, XPU, MPS and NPU look alike. What that interface does not
tell (a name, a data type's support) is asked of the kind's own module, e.g. `torch.cuda`, where it has an answer.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from labkit.devices import memory
from labkit.errors import UnknownName, require

__all__ = ["Device", "attached", "best", "find", "synchronize"]

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Device:
    """One place to compute: `id` is what `torch.device` takes, `memory_bytes` all that it has.

    `dtypes` are the names of the data types in which a matrix product is worth running: the hardware computes in them.
    Others still work, often far slower; `ceilings` measures how much.
    """

    id: str
    kind: str
    name: str
    memory_bytes: int
    dtypes: tuple[str, ...]

    def __post_init__(self) -> None:
        require(self.memory_bytes >= 0, f"memory_bytes is {self.memory_bytes}; it must not be negative", "Give bytes.")
        require(bool(self.dtypes), f"{self.id} has no dtypes", "Name at least 'float32'.")


@cache
def attached() -> tuple[Device, ...]:
    """List the devices: accelerators in their order, the CPU last.

    Asked once per process. When `LABKIT_GPU_FRACTION` is set (0.25: a quarter), each accelerator's allocator is held
    to that share of its memory from here on, so that the seats of a workshop can share one card.
    """
    return (*_accelerators(), _cpu())


def best() -> Device:
    """Return the first accelerator, or the CPU where there is none.

    >>> best() == attached()[0]
    True
    """
    return attached()[0]


def find(device_id: str) -> Device:
    """Return the device with this id; a bare kind ("cuda") means its first.

    Raises `UnknownName` with the ids that exist.

    >>> find("cpu").kind
    'cpu'
    """
    for device in attached():
        if device_id in (device.id, device.kind):
            return device
    raise UnknownName.among("device", device_id, [device.id for device in attached()])


def synchronize(device_id: str) -> None:
    """Wait until everything that was launched on the device has run; on the CPU it already has."""
    if torch.device(device_id).type != "cpu":
        torch.accelerator.synchronize(device_id)


def _accelerators() -> tuple[Device, ...]:
    current = torch.accelerator.current_accelerator(check_available=True)
    if current is None:
        return ()
    memory.limit_from_environment(current.type)
    return tuple(_accelerator(current.type, index) for index in range(torch.accelerator.device_count()))


def _accelerator(kind: str, index: int) -> Device:
    module = torch.get_device_module(kind)
    device_id = f"{kind}:{index}"
    return Device(
        id=device_id,
        kind=kind,
        name=_ask(lambda: str(module.get_device_name(index)), otherwise=kind.upper()),
        memory_bytes=memory.total_bytes(device_id),
        dtypes=_accelerator_dtypes(module, index),
    )


def _accelerator_dtypes(module: Any, index: int) -> tuple[str, ...]:
    """Leave out bfloat16 where the card only emulates it (CUDA below compute capability 8)."""
    emulated = _ask(lambda: module.get_device_capability(index)[0] < 8, otherwise=False)
    wide = torch.version.hip is not None or module.__name__ != "torch.cuda" or not emulated
    return ("float32", "bfloat16", "float16") if wide else ("float32", "float16")


def _ask(question: Callable[[], Answer], otherwise: Answer) -> Answer:
    """Ask a backend module something that not every kind of device can answer."""
    try:
        return question()
    except (AttributeError, RuntimeError, NotImplementedError, TypeError, KeyError):
        return otherwise


def _cpu() -> Device:
    return Device("cpu", "cpu", _cpu_name(), memory.total_bytes("cpu"), _cpu_dtypes())


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _cpu_dtypes() -> tuple[str, ...]:
    """Ask PyTorch which instructions the CPU has; without an answer only float32 is promised."""
    can: dict[str, Any] = _ask(lambda: dict(torch.cpu.get_capabilities()), {})
    bfloat16 = any(can.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"))
    float16 = any(can.get(name) for name in ("avx512_fp16", "amx_fp16", "fp16_arith"))
    return ("float32", *(["bfloat16"] if bfloat16 else []), *(["float16"] if float16 else []))
