"""Any other module, traced by `torch.export` and cut between its operations.

The trace is a list of operations (ATen, not decomposed, so they compute the very same bits). A layer begins at each
operation that multiplies: one that reads a matrix of weights, or a product of two activations. What is still needed
behind a cut is carried over it: skip connections, masks and sizes travel in the edge's value, a tuple.

A cut is refused where an operation behind it writes in place into a value that crosses it: both sides would have to
share memory. A module that writes into its own buffers is refused as a whole: a stage must give the same answer twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.utils import _pytree as pytree

from labkit.errors import SettingError
from labkit.sharding.graph import Graph
from labkit.sharding.nested import leaves, map_leaves, rows_of
from labkit.sharding.piece import Piece
from labkit.sharding.sample import resized

__all__ = ["Traced", "exported_layers"]


@dataclass(frozen=True, slots=True)
class Traced:
    """The layers of a traced module; see `Chain` for the fields."""

    names: tuple[str, ...]
    layers: tuple[nn.Module, ...]
    refusals: Mapping[int, str]
    carried: tuple[tuple[str, ...], ...]


class _Whole(nn.Module):
    """The user's module with one value in place of its arguments."""

    def __init__(self, model: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model

    def forward(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self.model(**value)
        return self.model(*value) if isinstance(value, tuple) else self.model(value)


def exported_layers(model: Callable[..., Any], example: Any) -> Traced:
    """Trace the model and part it; the number of rows stays free where `torch.export` allows it.

    Raises `SettingError` when it cannot be traced, writes into its own buffers, or when the layers do not reproduce
    its output bit for bit.
    """
    whole = _Whole(model)
    sample = resized(example, max(2, rows_of(example) or 2))  # one row alone would be traced as a fixed size
    with torch.no_grad(), _inference(whole):
        program = _trace(whole, sample)
        graph = Graph.of(program)
        fixed_rows = _fixed_rows(program) or (None if _agrees(whole, graph, resized(sample, 1)) else rows_of(sample))
        if not _agrees(whole, graph, sample):
            raise SettingError(
                f"The traced layers of {type(model).__name__} do not give the same output as the model",
                "It may use random numbers or outside state. Declare its blocks with a method chain().",
            )
    return Traced(graph.names, tuple(_pieces(graph, fixed_rows)), graph.refusals, graph.carried)


def _trace(whole: nn.Module, sample: Any) -> ExportedProgram:
    shapes = map_leaves(lambda leaf: {0: Dim.AUTO} if leaf.ndim else None, sample)
    shapes = pytree.tree_map(lambda leaf: leaf if leaf is Dim.AUTO or isinstance(leaf, int) else None, shapes)
    try:
        return export(whole, (sample,), dynamic_shapes=(shapes,), strict=False)
    except Exception as error:  # export raises many kinds, and all mean the same here
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise SettingError(
            f"torch.export cannot trace this model: {reason[0]}",
            "Declare its blocks with a method chain() -> [(name, layer), ...].",
        ) from error


@contextmanager
def _inference(model: nn.Module) -> Iterator[None]:
    """Hold all modules in eval mode, and give each its own mode back."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _fixed_rows(program: ExportedProgram) -> int | None:
    """The number of rows that the trace is bound to; None if it is free."""
    names = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        rows = value.shape[0] if isinstance(value, Tensor) and value.ndim else None
        if node.op == "placeholder" and node.name in names and isinstance(rows, int):
            return rows
    return None


def _pieces(graph: Graph, fixed_rows: int | None) -> Iterator[Piece]:
    last = len(graph.names) - 1
    for layer in range(last + 1):
        yield Piece(
            graph.module(layer),
            takes=graph.takes if layer == 0 else None,
            gives=graph.gives if layer == last else None,
            fixed_rows=fixed_rows if layer == 0 else None,
        )


def _agrees(whole: nn.Module, graph: Graph, sample: Any) -> bool:
    """Whether the layers compute what the model computes, to the bit."""
    try:
        wanted = whole(sample)
        value = sample
        for piece in _pieces(graph, None):
            value = piece(value)
    except (RuntimeError, ValueError, TypeError):
        return False
    pairs = zip(leaves(wanted), leaves(value), strict=True)
    return all(isinstance(one, Tensor) and _same(one, other) for one, other in pairs)


def _same(one: Tensor, other: Any) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(
        torch.equal(one.nan_to_num(), other.nan_to_num()) if one.is_floating_point() else torch.equal(one, other)
    )
