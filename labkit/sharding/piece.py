"""One layer of a traced module: a list of operations, and at the ends the shape of the user's input and output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils import _pytree as pytree

from labkit.errors import require
from labkit.sharding.nested import rows_of

__all__ = ["Piece", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Stands in a template where value number `index` belongs."""

    index: int


class Piece(nn.Module):
    """Takes the tuple of values that cross its first cut and returns the tuple of those that cross its last one.

    `takes` is the template of the user's input, for the first layer; `gives` that of the output, for the last.
    """

    def __init__(
        self, operations: Callable[[tuple[Any, ...]], tuple[Any, ...]], takes: Any, gives: Any, fixed_rows: int | None
    ) -> None:
        super().__init__()
        self.operations = operations
        self.takes, self.gives, self.fixed_rows = takes, gives, fixed_rows

    def forward(self, value: Any) -> Any:
        """Unpack the input if this is the first layer, compute, and pack the output if it is the last."""
        values = value if self.takes is None else self._unpack(value)
        values = self.operations(values)
        if self.gives is None:
            return values
        return pytree.tree_map(lambda leaf: values[leaf.index] if isinstance(leaf, Place) else leaf, self.gives)

    def _unpack(self, value: Any) -> tuple[Any, ...]:
        if isinstance(self.takes, dict) and isinstance(value, dict) and value.keys() == self.takes.keys():
            value = {name: value[name] for name in self.takes}
        require(
            pytree.tree_structure(value) == pytree.tree_structure(self.takes),
            f"The input is built differently from the example ({type(value).__name__})",
            "Give the same tuples and dicts as in the example that the model was traced with.",
        )
        require(
            self.fixed_rows is None or rows_of(value) == self.fixed_rows,
            f"The input has {rows_of(value)} rows, and this model was traced for {self.fixed_rows} only",
            "torch.export found that it depends on the rows; trace it with this number, or declare a chain().",
        )
        return tuple(pytree.tree_leaves(value))
