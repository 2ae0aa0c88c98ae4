"""Preprocessing for models that bring none of their own, or only a plain function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labkit.engine import Place

__all__ = ["PreparePlain", "fresh"]


@dataclass(frozen=True, slots=True)
class PreparePlain:
    """Give any function `payload -> row` the form of `labkit.engine.Prepare`; by default the payload is the row.

    The function's answer may be whatever `torch.as_tensor` takes. It is thread-safe if the function is.

    >>> PreparePlain()([1.0, 2.0])
    tensor([1., 2.])
    """

    function: Callable[[Any], Any] = torch.as_tensor

    def __call__(self, payload: Any) -> Tensor:
        """Return the row as a tensor."""
        return torch.as_tensor(self.function(payload))

    def into(self, payload: Any, place: Place) -> Tensor:
        """Copy the row into the tensor that `place` gives, and return that tensor."""
        row = self(payload)
        return place(tuple(row.shape), row.dtype).copy_(row)


def fresh(shape: tuple[int, ...], dtype: torch.dtype, real_units: int | None = None) -> Tensor:
    """Be the `Place` of a row that no engine stages: a new tensor on the CPU."""
    return torch.empty(shape, dtype=dtype)
