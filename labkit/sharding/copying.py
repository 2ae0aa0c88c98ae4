"""Copies with one thread: torch's own use all cores, and wait for all of them.

Values are moved while every core is busy computing. A copy that is shared out over the cores then waits for the slowest
of them, for milliseconds; a plain one takes 0.1 ms for a MiB.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

__all__ = ["cloned", "copy_into", "stacked"]


def copy_into(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy `source` into `target`, which has its shape; they may differ in everything else.

    >>> target = torch.zeros(2)
    >>> copy_into(target, torch.tensor([1, 2])); target
    tensor([1., 2.])
    """
    if _same_bytes(target, source):
        ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)
    else:
        target.copy_(source)


def cloned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of its own memory, laid out like the original where that is dense."""
    copy = torch.empty_like(tensor)
    copy_into(copy, tensor)
    return copy


def stacked(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join along the leading axis.

    >>> stacked([torch.zeros(1, 2), torch.ones(2, 2)]).tolist()
    [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    """
    first = parts[0]
    if any(part.dtype != first.dtype or part.shape[1:] != first.shape[1:] or part.is_cuda for part in parts):
        return torch.cat(list(parts))
    whole = torch.empty((sum(len(part) for part in parts), *first.shape[1:]), dtype=first.dtype, device=first.device)
    begin = 0
    for part in parts:
        copy_into(whole[begin : begin + len(part)], part)
        begin += len(part)
    return whole


def _same_bytes(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether one run of bytes is all that there is to copy."""
    return (
        source.device.type == target.device.type == "cpu"
        and source.layout is torch.strided
        and source.dtype == target.dtype
        and not (source.is_conj() or source.is_neg())
        and ((source.is_contiguous() and target.is_contiguous()) or _same_order(target, source))
    )


def _same_order(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether both are dense in the same order of axes, channels last for example."""
    return source.stride() == target.stride() and source.stride() == torch.empty_like(source, device="meta").stride()
