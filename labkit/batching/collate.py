"""Rows into a batch, and a batch of outputs back into rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from labkit.batching.pool import side_by_side
from labkit.batching.request import Request
from labkit.errors import SettingError, require

__all__ = ["Lengths", "collate", "default_key", "split"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Pads rows of variable length (axis 0) with `value` to the next of `edges`, one bucket for each edge.

    >>> Lengths((16, 32)).edge(17)
    32
    """

    edges: tuple[int, ...]
    value: float = 0

    def __post_init__(self) -> None:
        require(
            bool(self.edges) and list(self.edges) == sorted(set(self.edges)) and self.edges[0] > 0,
            f"edges is {self.edges}; it must be rising and positive",
            "Give for example edges=(16, 32, 64).",
        )

    def edge(self, length: int) -> int:
        """The padded length of a row; raises `SettingError` for one that is longer than the last edge."""
        for edge in self.edges:
            if length <= edge:
                return edge
        raise SettingError(
            f"a row has length {length}; the longest bucket is {self.edges[-1]}", "Truncate it or add a longer edge."
        )


def default_key(row: Any) -> Hashable:
    """The bucket of a row: shape and type of a tensor or array; all other objects share one bucket.

    >>> default_key(np.zeros((2, 3), dtype=np.int64)), default_key("text")
    (('array', (2, 3), dtype('int64')), None)
    """
    if getattr(row, "shape", None) is None:
        return None
    if isinstance(row, torch.Tensor):
        return ("tensor", tuple(row.shape), row.dtype, row.device)
    if isinstance(row, np.ndarray):
        return ("array", row.shape, row.dtype)
    return None


def collate(requests: Sequence[Request], size: int) -> tuple[Any, int]:
    """Put the rows of `requests` together; return the batch and the bytes that were copied for it.

    Tensors and arrays become one of shape `[size, *row]`, everything else a list. Where `size` is larger than the
    number of rows, the last row is repeated.
    """
    if size == len(requests) and requests[0].slot is not None:
        slots = [request.slot for request in requests if request.slot is not None]
        if len(slots) == len(requests) and side_by_side(slots):
            first = slots[0].index
            return slots[0].ring.block[first : first + size], 0
    rows = [request.row for request in requests]
    rows += [rows[-1]] * (size - len(rows))
    if isinstance(rows[0], torch.Tensor):
        batch = torch.stack(rows)
        return batch, batch.nbytes
    if isinstance(rows[0], np.ndarray):
        array = np.stack(rows)
        return array, array.nbytes
    return rows, 0


def split(output: Any, rows: int, size: int) -> list[Any]:
    """Cut a model's output for a batch of `size` into its first `rows` answers.

    A tensor or array is cut along axis 0, a list holds one answer per row, a tuple or mapping of batched values gives
    each row a tuple or dict of its parts. Raises `SettingError` if the output is not `size` long.
    """
    if isinstance(output, Mapping):
        columns = {name: split(value, rows, size) for name, value in output.items()}
        return [{name: column[row] for name, column in columns.items()} for row in range(rows)]
    if isinstance(output, tuple) and all(isinstance(part, (torch.Tensor, np.ndarray)) for part in output):
        parts = [split(part, rows, size) for part in output]
        return list(zip(*parts, strict=True))
    _check_length(output, size)
    return list(output.unbind(0)[:rows]) if isinstance(output, torch.Tensor) else list(output[:rows])


def _check_length(output: Any, size: int) -> None:
    scalar = isinstance(output, (torch.Tensor, np.ndarray)) and output.ndim == 0
    if scalar or not hasattr(output, "__len__") or not hasattr(output, "__getitem__"):
        raise SettingError(
            f"the model returned {type(output).__name__} for a batch of {size}", "Return one answer per row, in order."
        )
    if len(output) != size:
        raise SettingError(
            f"the model returned {len(output)} answers for a batch of {size}", "Return one answer per row, in order."
        )
