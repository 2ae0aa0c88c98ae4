"""A traced module as a list of operations: where layers begin, what crosses each cut, and where no cut may lie."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from labkit.errors import SettingError
from labkit.sharding.aliases import Aliases
from labkit.sharding.piece import Place

__all__ = ["Graph"]

# Products of two activations; those with weights are known by the weights.
PRODUCTS = {"matmul", "mm", "bmm", "baddbmm", "addmm", "einsum", "linear", "scaled_dot_product_attention"}
CHECKS = {"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size"}


@dataclass(eq=False)
class Graph:
    """The operations in order, without those that do nothing.

    `inputs` are the user's leaves, `weights` the tensors by node, `constants` the operations that depend on no input:
    they are not carried but computed again in each layer that needs them.
    """

    inputs: list[fx.Node]
    weights: dict[fx.Node, Any]
    constants: list[fx.Node]
    operations: list[fx.Node]
    outputs: list[Any]
    takes: Any
    gives: Any
    aliases: Aliases

    @classmethod
    def of(cls, program: ExportedProgram) -> Graph:
        """Read an exported program; the program's own graph is tidied up on the way."""
        graph = program.graph
        for node in list(graph.nodes):
            _tidy(graph, node)
        weights = dict(_weights(program))
        aliases = Aliases.of(graph)
        _refuse_own_state(weights, aliases)
        inputs = [node for node in graph.nodes if node.op == "placeholder" and node not in weights]
        operations = [node for node in graph.nodes if node.op == "call_function"]
        constants = _constants(operations, weights, aliases)
        (outputs,) = next(node for node in graph.nodes if node.op == "output").args
        return cls(
            inputs=inputs,
            weights=weights,
            constants=[node for node in operations if node in constants],
            operations=[node for node in operations if node not in constants],
            outputs=list(outputs),
            takes=_template(program.call_spec.in_spec, [Place(index) for index in range(len(inputs))])[0][0],
            gives=_gives(program.call_spec.out_spec, list(outputs)),
            aliases=aliases,
        )

    @cached_property
    def starts(self) -> list[int]:
        """The operations with which the layers begin."""
        heavy = [place for place, node in enumerate(self.operations) if self._multiplies(node)]
        return [0, *heavy[1:]]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each layer: the module that its first product belongs to, else the operation."""
        names: list[str] = []
        for first, last in self._ranges():
            node = next(
                (node for node in self.operations[first:last] if self._multiplies(node)), self.operations[first]
            )
            name = _module_path(node) or _operation(node)
            taken = sum(known == name or known.startswith(f"{name}#") for known in names)
            names.append(f"{name}#{taken + 1}" if taken else name)
        return tuple(names)

    @cached_property
    def crossing(self) -> list[list[fx.Node]]:
        """The values that cross each cut: made before it, needed behind it."""
        needed = self._needed_until()
        made = {node: place for place, node in enumerate(self.operations)}
        values = [*self.inputs, *self.operations]
        cuts = [
            [node for node in values if made.get(node, -1) < start <= needed.get(node, -1)] for start in self.starts[1:]
        ]
        return [self.inputs, *cuts, [value for value in dict.fromkeys(self.outputs) if isinstance(value, fx.Node)]]

    @cached_property
    def carried(self) -> tuple[tuple[str, ...], ...]:
        """Names of the values that cross each cut."""
        return tuple(tuple(node.name for node in values) for values in self.crossing)

    @cached_property
    def refusals(self) -> dict[int, str]:
        """Cuts that may not be, because something behind them writes into a value that crosses them."""
        refused: dict[int, str] = {}
        for place, node in enumerate(self.operations):
            for root in self.aliases.written(node):
                for cut, start in enumerate(self.starts):
                    hit = [value for value in self.crossing[cut] if self.aliases.root(value) is root]
                    if 0 < start <= place and hit:
                        refused[cut] = f"{_operation(node)} behind it writes in place into {hit[0].name!r}."
        return refused

    def module(self, layer: int) -> fx.GraphModule:
        """Build the layer: the tuple of values at its first cut in, that at its last cut out."""
        first, last = self._ranges()[layer]
        root, graph = nn.Module(), fx.Graph()
        edge = graph.placeholder("edge")
        env = {node: graph.call_function(operator.getitem, (edge, at)) for at, node in enumerate(self.crossing[layer])}
        wanted = [value for value in self.crossing[layer + 1] if value not in env]
        for node in [*self._constants_for([*self.operations[first:last], *wanted]), *self.operations[first:last]]:
            env[node] = _copied(graph, root, node, env, self.weights)
        graph.output(tuple(_held(graph, root, value, env, self.weights) for value in self.crossing[layer + 1]))
        given = (value for value in env if value in self.weights or value in self.crossing[layer])
        held = (env[value] for value in given if isinstance(value.meta.get("val"), Tensor))
        _follow_device(graph, next(held, None))
        return fx.GraphModule(root, graph)

    def _ranges(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, [*self.starts[1:], len(self.operations)], strict=True))

    def _multiplies(self, node: fx.Node) -> bool:
        if _operation(node) in PRODUCTS:
            return True
        weights = (value for value in node.all_input_nodes if value in self.weights or value in self._weighted)
        return any(_is_matrix(value.meta.get("val")) for value in weights)

    @cached_property
    def _weighted(self) -> set[fx.Node]:
        """Constants that are made of weights: a slice, a transpose, another precision of them."""
        found: set[fx.Node] = set()
        for node in self.constants:
            if any(value in self.weights or value in found for value in node.all_input_nodes):
                found.add(node)
        return found

    def _needed_until(self) -> dict[fx.Node, int]:
        """The last operation that reads each value; one past the last for outputs."""
        needed = {value: place for place, node in enumerate(self.operations) for value in node.all_input_nodes}
        return needed | {value: len(self.operations) for value in self.outputs if isinstance(value, fx.Node)}

    def _constants_for(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        wanted, pending = set[fx.Node](), list(nodes)
        known = set(self.constants)
        while pending:
            node = pending.pop()
            fresh = [value for value in (node, *node.all_input_nodes) if value in known and value not in wanted]
            wanted.update(fresh)
            pending.extend(fresh)
        return [node for node in self.constants if node in wanted]


def _is_matrix(value: Any) -> bool:
    """Whether a weight has two dimensions at least; a bias that is laid out for broadcasting has one."""
    return isinstance(value, Tensor) and sum(size > 1 for size in value.shape) >= 2


def _operation(node: fx.Node) -> str:
    """The operation's plain name: "conv2d", not "aten.conv2d.default"."""
    if isinstance(node.target, OpOverload):
        return node.target._schema.name.partition("::")[2]
    return getattr(node.target, "__name__", str(node.target))


def _module_path(node: fx.Node) -> str:
    """The path of the innermost module that an operation was traced in, within the user's model."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path = str(stack[-1][0]) if stack else ""
    return path.removeprefix("model").removeprefix(".") if path.startswith("model") else ""


def _tidy(graph: fx.Graph, node: fx.Node) -> None:
    """Drop checks of what was true when it was traced, and casts to what a tensor already is (device included)."""
    if node.op != "call_function":
        return
    if _operation(node) in CHECKS:
        graph.erase_node(node)
    elif _operation(node) == "to" and _changes_nothing(node):
        node.replace_all_uses_with(node.all_input_nodes[0])
        graph.erase_node(node)


def _changes_nothing(node: fx.Node) -> bool:
    before, after = node.all_input_nodes[0].meta.get("val"), node.meta.get("val")
    if not (isinstance(before, Tensor) and isinstance(after, Tensor)) or True in node.args:  # True: copy in any case
        return False
    return before.dtype == after.dtype and before.device == after.device and _laid_out_as_before(node)


def _laid_out_as_before(node: fx.Node) -> bool:
    return node.kwargs.get("memory_format", torch.preserve_format) is torch.preserve_format


def _weights(program: ExportedProgram) -> Iterator[tuple[fx.Node, Any]]:
    """Parameters, buffers and constants; also the bodies of control flow."""
    held = {**program.state_dict, **program.constants}
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target is not None}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in targets:
            yield node, held[targets[node.name]]
        elif node.op == "get_attr":
            yield node, operator.attrgetter(str(node.target))(program.graph_module)


def _refuse_own_state(weights: dict[fx.Node, Any], aliases: Aliases) -> None:
    for node in aliases.writers:
        for root in aliases.written(node):
            if root in weights:
                raise SettingError(
                    f"The model writes into its own weight or buffer {root.name!r} ({_operation(node)})",
                    "A stage must give the same answer when it is asked again; keep such state out of forward().",
                )


def _constants(operations: list[fx.Node], weights: dict[fx.Node, Any], aliases: Aliases) -> set[fx.Node]:
    """Operations that depend on weights alone or on nothing, always give the same, and are not written into later."""
    found: set[fx.Node] = set()
    changed = {root for node in aliases.writers for root in aliases.written(node)}
    for node in operations:
        fixed = all(value in weights or value in found for value in node.all_input_nodes)
        seeded = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if fixed and not seeded and aliases.root(node) not in changed:
            found.add(node)
    return found


def _template(spec: Any, places: list[Any]) -> Any:
    return pytree.tree_unflatten(places, spec)


def _gives(spec: Any, outputs: list[Any]) -> Any:
    """The output's template: a place for each value, plain values as they are."""
    values = list(dict.fromkeys(value for value in outputs if isinstance(value, fx.Node)))
    return _template(spec, [Place(values.index(out)) if isinstance(out, fx.Node) else out for out in outputs])


def _copied(
    graph: fx.Graph, root: nn.Module, node: fx.Node, env: dict[fx.Node, fx.Node], weights: dict[fx.Node, Any]
) -> fx.Node:
    for value in node.all_input_nodes:
        env[value] = _held(graph, root, value, env, weights)
    copied = graph.node_copy(node, env.__getitem__)
    copied.meta = {}  # no tensors of the trace may stay with the layer
    return copied


def _held(
    graph: fx.Graph, root: nn.Module, value: fx.Node, env: dict[fx.Node, fx.Node], weights: dict[fx.Node, Any]
) -> fx.Node:
    """The value within the layer; a weight becomes an attribute, named after itself, when it is first needed."""
    if value not in env:
        tensor, name = weights[value], value.name
        if isinstance(tensor, Tensor) and not isinstance(tensor, nn.Parameter):
            root.register_buffer(name, tensor)
        else:
            setattr(root, name, tensor)
        env[value] = graph.get_attr(name)
    return env[value]


def _follow_device(graph: fx.Graph, tensor: fx.Node | None) -> None:
    """Make new tensors where `tensor` is, not where the model was traced."""
    makers = [node for node in graph.nodes if isinstance(node.kwargs.get("device"), torch.device)]
    if tensor is None or not makers:
        return
    with graph.inserting_after(tensor):
        device = graph.call_function(getattr, (tensor, "device"))
    for node in makers:
        node.kwargs = {**node.kwargs, "device": device}
