"""Which runners carry a model: one per instance on each device that was asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch

from labkit.batching.cuda import CudaRunner
from labkit.batching.runner import HostRunner, Runner
from labkit.errors import require

__all__ = ["place"]


def place(model: Callable[[Any], Any], device: str | Sequence[str], instances: int) -> list[Runner]:
    """Runners for `instances` of `model` on each device; a module's copies share weights on a device.

    The user's module is never moved: where its parameters lie elsewhere, a copy is.
    """
    devices = [device] if isinstance(device, str) else list(device)
    require(bool(devices), "device is empty; it must name at least one device", 'Give for example device="cpu".')
    require(instances >= 1, f"instances is {instances}; it must be at least 1", "Give a count.")
    sole = len(devices) == 1
    return [_runner(local, one, sole and instances == 1) for one in devices for local in [_on(model, one)] * instances]


def _on(model: Callable[[Any], Any], device: str) -> Callable[[Any], Any]:
    if not isinstance(model, torch.nn.Module):
        return model
    # An empty tensor says what "cuda" stands for: the same type of device may be another one.
    wanted = torch.empty(0, device=device).device
    if all(tensor.device == wanted for tensor in chain(model.parameters(), model.buffers())):
        return model
    return copy.deepcopy(model).to(device)


def _runner(model: Callable[[Any], Any], device: str, sole: bool) -> Runner:
    return CudaRunner(model, device, upload_early=sole) if device.startswith("cuda") else HostRunner(model, device)
