"""Which values of a trace share memory, and which operations write into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx
from torch._ops import OpOverload

__all__ = ["Aliases"]

# Their schema promises a new tensor, yet in eval mode they return their input.
UNTRUE = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}


@dataclass(frozen=True, slots=True)
class Aliases:
    """`roots`: for a view the value that it is a view of; `writers`: the operations that work in place."""

    roots: dict[fx.Node, fx.Node]
    writers: tuple[fx.Node, ...]

    @classmethod
    def of(cls, graph: fx.Graph) -> Aliases:
        """Read the operations' schemas, which say what an output shares with an argument and what is written to."""
        roots: dict[fx.Node, fx.Node] = {}
        for node in graph.nodes:
            source = _source(node)
            if source is not None:
                roots[node] = roots.get(source, source)
        writers = (node for node in graph.nodes if any(_arguments(node, written=True)))
        return cls(roots, tuple(writers))

    def root(self, node: fx.Node) -> fx.Node:
        """The value whose memory this one uses; itself if it has its own."""
        return self.roots.get(node, node)

    def written(self, node: fx.Node) -> set[fx.Node]:
        """The roots of what an operation writes into."""
        return {self.root(value) for value in _arguments(node, written=True)}


def _source(node: fx.Node) -> fx.Node | None:
    """The argument that the operation's output shares memory with, if any."""
    if isinstance(node.target, OpOverload):
        name = node.target._schema.name.partition("::")[2]
        shares = any(returned.alias_info is not None for returned in node.target._schema.returns)
        found = _arguments(node, written=False) if shares else iter(node.all_input_nodes[:1] if name in UNTRUE else ())
        return next(iter(found), None)
    return node.all_input_nodes[0] if node.op == "call_function" and node.all_input_nodes else None  # getitem


def _arguments(node: fx.Node, *, written: bool) -> Iterator[fx.Node]:
    """The arguments that an operation shares its output with, or those that it writes into."""
    if not isinstance(node.target, OpOverload):
        return
    for place, argument in enumerate(node.target._schema.arguments):
        info = argument.alias_info
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if info is not None and (info.is_write or not written):
            yield from (
                item for item in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(item, fx.Node)
            )
