"""Getting back what a failed notebook cell still holds.

After a cell fails, the traceback keeps every local variable of every function on the way alive: Python holds it in
`sys.last_value`, IPython in its traceback printer and its last result. On a GPU that is memory that nobody can use
until the kernel restarts. `release` lets go of all of it.
"""

from __future__ import annotations

import gc
import sys
import traceback
from typing import Any

import torch

from labkit.devices.allocator import trim_freed_memory
from labkit.devices.memory import reserved_bytes

__all__ = ["release"]

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def release() -> int:
    """Let go of what a failed cell keeps alive and empty the allocators' caches; return the bytes that came free.

    Counts tensors on the CPU, and on accelerators what went back to the driver. Variables of the notebook stay; the
    debugger's view of the last error (`%debug`) is gone.
    """
    devices = _accelerator_ids()
    before = sum(map(reserved_bytes, devices)) + _cpu_tensor_bytes()
    _forget_last_error()
    gc.collect()
    trim_freed_memory()
    if devices:
        torch.accelerator.memory.empty_cache()
    return max(0, before - sum(map(reserved_bytes, devices)) - _cpu_tensor_bytes())


def _forget_last_error() -> None:
    shell = _ipython_shell()
    result = getattr(shell, "last_execution_result", None)
    for error in (getattr(sys, "last_value", None), getattr(sys, "last_exc", None)):
        _clear_frames(error)
    if result is not None:
        _clear_frames(result.error_in_exec)
        result.error_in_exec = None
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            setattr(sys, name, None)
    printer = getattr(shell, "InteractiveTB", None)
    if printer is not None:
        printer.tb = None


def _clear_frames(error: BaseException | None) -> None:
    """Drop the local variables along the error and the errors behind it, whoever else holds on to them."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _ipython_shell() -> Any:
    """Return the running IPython shell, if there is one; IPython is not imported for that."""
    module = sys.modules.get("IPython.core.getipython")
    return module.get_ipython() if module is not None else None


def _accelerator_ids() -> list[str]:
    current = torch.accelerator.current_accelerator(check_available=True)
    return [f"{current.type}:{index}" for index in range(torch.accelerator.device_count())] if current else []


def _cpu_tensor_bytes() -> int:
    """Add up the CPU storages that Python can still reach, each once however many views it has."""
    sizes: dict[int, int] = {}
    for thing in gc.get_objects():
        # type(), not isinstance(): lazy modules and proxies answer isinstance() by importing or computing things.
        if type(thing) in _PLAIN and thing.device.type == "cpu" and thing.layout is torch.strided:
            storage = thing.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())
