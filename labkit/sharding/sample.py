"""Inputs to measure with, made of one example."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labkit.sharding.nested import map_leaves

__all__ = ["cast", "resized"]


def resized(value: Any, rows: int) -> Any:
    """Repeat or drop rows of every tensor until there are so many.

    >>> resized((torch.tensor([1, 2]), None), 3)
    (tensor([1, 2, 1]), None)
    """

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.ndim == 0 or leaf.shape[0] == 0:
            return leaf
        return leaf[torch.arange(rows, device=leaf.device) % leaf.shape[0]]

    return map_leaves(change, value)


def cast(value: Any, dtype: torch.dtype | None) -> Any:
    """Give all floating tensors of a value the type; None: leave them."""

    def change(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    return value if dtype is None else map_leaves(change, value)
