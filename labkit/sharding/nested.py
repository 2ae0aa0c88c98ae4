"""Values made of values: what a payload, an edge or an answer may be, and how rows are split off and joined again.

    {"ids": int64 [7, 16], "mask": None}   cut into rows of 4:   {"ids": [4, 16], "mask": None}, {"ids": [3, 16], ...}

Tensors and arrays with a leading axis carry rows; everything else (None, numbers, strings) goes along with every part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from labkit.errors import SettingError
from labkit.sharding.copying import stacked

__all__ = ["Leaf", "join", "leaves", "map_leaves", "rows_of", "split"]

Leaf: TypeAlias = "torch.Tensor | np.ndarray[Any, Any]"


def leaves(value: Any) -> Iterator[Leaf]:
    """Yield every tensor and array inside `value`, in order.

    >>> [tuple(leaf.shape) for leaf in leaves({"a": torch.ones(2), "b": (None, [np.ones(3)])})]
    [(2,), (3,)]
    """
    if isinstance(value, (torch.Tensor, np.ndarray)):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """Build the same structure with every tensor and array replaced by `change(leaf)`.

    >>> map_leaves(lambda leaf: leaf + 1, (torch.tensor(1), None, "kept"))
    (tensor(2), None, 'kept')
    """
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return change(value)
    if isinstance(value, Mapping):
        return _mapping_like(value, {name: map_leaves(change, item) for name, item in value.items()})
    if isinstance(value, (tuple, list)):
        return _sequence_like(value, [map_leaves(change, item) for item in value])
    return value


def rows_of(value: Any) -> int | None:
    """How many rows `value` has: the length of its tensors' leading axis, or None if no tensor has one.

    Raises `SettingError` if its tensors disagree.

    >>> rows_of((torch.ones(7, 3), {"mask": torch.ones(7)}, 5)), rows_of("text")
    (7, None)
    """
    lengths = {leaf.shape[0] for leaf in leaves(value) if leaf.ndim}
    if len(lengths) > 1:
        problem = f"the payload's tensors have leading axes of {sorted(lengths)}; they must agree"
        raise SettingError(problem, "Give every tensor one row per item, or wrap what is shared in a 0-dim tensor.")
    return lengths.pop() if lengths else None


def split(value: Any, most_rows: int | None) -> list[Any]:
    """Cut `value` into parts of at most `most_rows` rows; the last may be short. Tensors become views.

    >>> [len(part) for part in split(torch.ones(7, 2), 2)]
    [2, 2, 2, 1]
    """
    rows = rows_of(value)
    if most_rows is None or rows is None or rows <= most_rows:
        return [value]
    return [_part(value, slice(at, at + most_rows)) for at in range(0, rows, most_rows)]


def _part(value: Any, rows: slice) -> Any:
    return map_leaves(lambda leaf: leaf[rows] if leaf.ndim else leaf, value)


def join(parts: Sequence[Any], rows: Sequence[int | None]) -> Any:
    """Put the outputs of the parts together again; `rows` says how many rows each part had.

    Raises `ValueError` where the parts cannot be joined: other structures, or plain values that differ.

    >>> join([(torch.zeros(2, 1), None), (torch.ones(1, 1), None)], [2, 1])[0].flatten()
    tensor([0., 0., 1.])
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(type(part) is not type(first) for part in parts):
        raise ValueError(f"the microbatches returned {sorted({type(part).__name__ for part in parts})}")
    if isinstance(first, (torch.Tensor, np.ndarray)):
        return _join_leaves(parts, rows)
    if isinstance(first, Mapping):
        if any(part.keys() != first.keys() for part in parts):
            raise ValueError("the microbatches returned dicts with different keys")
        return _mapping_like(first, {name: join([part[name] for part in parts], rows) for name in first})
    if isinstance(first, (tuple, list)):
        if any(len(part) != len(first) for part in parts):
            raise ValueError(f"the microbatches returned sequences of {sorted({len(part) for part in parts})} items")
        return _sequence_like(first, [join(items, rows) for items in zip(*parts, strict=True)])
    if any(part != first for part in parts):
        raise ValueError(f"the microbatches returned different plain values: {first!r} and others")
    return first


def _join_leaves(parts: Sequence[Any], rows: Sequence[int | None]) -> Any:
    first = parts[0]
    if all(part.ndim and part.shape[0] == count for part, count in zip(parts, rows, strict=True)):
        return stacked(parts) if isinstance(first, torch.Tensor) else np.concatenate(parts)
    same = torch.equal if isinstance(first, torch.Tensor) else np.array_equal
    if all(same(part, first) for part in parts):
        return first
    shapes = [tuple(part.shape) for part in parts]
    raise ValueError(f"outputs of shapes {shapes} have no leading axis of {list(rows)} rows")


def _mapping_like(model: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    return items if type(model) is dict else type(model)(items)  # type: ignore[call-arg]


def _sequence_like(model: Sequence[Any], items: list[Any]) -> Any:
    named = hasattr(model, "_fields")
    return type(model)(*items) if named else type(model)(items)  # type: ignore[call-arg]
