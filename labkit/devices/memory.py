"""How much memory a device has, has left, and may give to this process."""

from __future__ import annotations

import os

import torch

from labkit.devices import host
from labkit.errors import require

__all__ = [
    "allocated_bytes",
    "gpu_fraction",
    "limit_from_environment",
    "memory_free_bytes",
    "reserved_bytes",
    "total_bytes",
]


def total_bytes(device_id: str) -> int:
    """Return all the memory that the device has; for the CPU what this process's container allows."""
    return _accelerator_memory(device_id)[1] if torch.device(device_id).type != "cpu" else host.memory_bytes()[1]


def memory_free_bytes(device_id: str) -> int:
    """Return the bytes that can be allocated on the device now, the allocator's own reserve included.

    >>> 0 < memory_free_bytes("cpu") <= total_bytes("cpu")
    True
    """
    if torch.device(device_id).type == "cpu":
        return host.memory_bytes()[0]
    free, total = _accelerator_memory(device_id)
    held, used = reserved_bytes(device_id), allocated_bytes(device_id)
    share = gpu_fraction()
    return max(0, min(free + held - used, int(total * share) - used))


def gpu_fraction() -> float:
    """Return the share of each accelerator's memory that `LABKIT_GPU_FRACTION` grants this process; 1 if unset.

    Raises `SettingError` for anything but a number above 0 and up to 1.
    """
    text = os.environ.get("LABKIT_GPU_FRACTION", "").strip() or "1"
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    require(0 < share <= 1, f"LABKIT_GPU_FRACTION is {text!r}; it must be above 0 and at most 1", "Try 0.25.")
    return share


def limit_from_environment(kind: str) -> None:
    """Hold this process's allocator to `LABKIT_GPU_FRACTION` on every device of that kind."""
    share = gpu_fraction()
    module = torch.get_device_module(kind)
    if share == 1 or not hasattr(module, "set_per_process_memory_fraction"):
        return
    if kind == "mps":  # one device, so its function takes no index
        module.set_per_process_memory_fraction(share)
        return
    for index in range(torch.accelerator.device_count()):
        module.set_per_process_memory_fraction(share, index)


def _accelerator_memory(device_id: str) -> tuple[int, int]:
    """Return free and total bytes, as the driver sees them."""
    try:
        free, total = torch.accelerator.memory.get_memory_info(device_id)
    except (AttributeError, RuntimeError, NotImplementedError):
        return _backend_memory(device_id)
    return int(free), int(total)


def _backend_memory(device_id: str) -> tuple[int, int]:
    """Ask the kind's own module, for those that `torch.accelerator` cannot ask yet (MPS among them)."""
    device = torch.device(device_id)
    module = torch.get_device_module(device.type)
    if hasattr(module, "recommended_max_memory"):
        total = int(module.recommended_max_memory())
        return max(0, total - int(module.driver_allocated_memory())), total
    if hasattr(module, "mem_get_info"):
        free, total = module.mem_get_info(device.index or 0)
        return int(free), int(total)
    total = int(module.get_device_properties(device.index or 0).total_memory)
    return max(0, total - reserved_bytes(device_id)), total


def reserved_bytes(device_id: str) -> int:
    """Return what this process's allocator has taken from the driver, used or not."""
    try:
        return int(torch.accelerator.memory.memory_reserved(device_id))
    except (AttributeError, RuntimeError, NotImplementedError):
        module = torch.get_device_module(torch.device(device_id).type)
        return int(module.driver_allocated_memory()) if hasattr(module, "driver_allocated_memory") else 0


def allocated_bytes(device_id: str) -> int:
    """Return what living tensors of this process occupy."""
    try:
        return int(torch.accelerator.memory.memory_allocated(device_id))
    except (AttributeError, RuntimeError, NotImplementedError):
        module = torch.get_device_module(torch.device(device_id).type)
        return int(module.current_allocated_memory()) if hasattr(module, "current_allocated_memory") else 0
