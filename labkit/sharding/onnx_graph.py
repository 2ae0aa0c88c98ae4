"""ONNX models: cut with onnx's own extraction, run stage by stage in ONNX Runtime.

    chain = OnnxChain.of("model.onnx")
    first, second = chain.stage(0, 4), chain.stage(4, len(chain))

A layer begins at each node that multiplies, as for traced modules. What is still needed behind a cut is carried over
it. ONNX Runtime fuses operations within a stage, so a cut model agrees with the whole one up to rounding.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labkit.errors import SettingError, Unavailable, require
from labkit.sharding.chain import Chain

__all__ = ["OnnxChain", "OnnxGraph", "OnnxStage"]

PRODUCTS = {"MatMul", "Gemm", "Einsum", "Attention", "MatMulInteger", "QLinearMatMul"}


class OnnxStage(nn.Module):
    """A part of an ONNX model; the session is opened at the first call, in whichever process that is.

    Takes and returns the values that cross its cuts, as a tuple of tensors in the order of their names. At the ends of
    the model that is a plain tensor, or a dict by name where there are several. It runs on the CPU.
    """

    def __init__(self, model: bytes, takes: tuple[str, ...], gives: tuple[str, ...], ends: tuple[bool, bool]) -> None:
        super().__init__()
        self.model, self.takes, self.gives, self.ends = model, takes, gives, ends
        self._session: Any = None

    def forward(self, value: Any) -> Any:
        """Run the stage; what it does not use passes through."""
        values = dict(zip(self.takes, self._unpacked(value), strict=True))
        session = self.session()
        feeds = {put.name: values[put.name].detach().cpu().numpy() for put in session.get_inputs()}
        names = [out.name for out in session.get_outputs()]
        values |= {name: torch.from_numpy(out) for name, out in zip(names, session.run(names, feeds), strict=True)}
        given = tuple(values[name] for name in self.gives)
        if not self.ends[1]:
            return given
        return given[0] if len(given) == 1 else dict(zip(self.gives, given, strict=True))

    def session(self) -> Any:
        """The open session, with as many threads as PyTorch uses here."""
        if self._session is None:
            runtime = _imported("onnxruntime")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            self._session = runtime.InferenceSession(self.model, options, providers=["CPUExecutionProvider"])
        return self._session

    def extra_repr(self) -> str:
        """What the stage is, in short."""
        return f"{', '.join(self.takes)} -> {', '.join(self.gives)}, {hashlib.sha256(self.model).hexdigest()[:16]}"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the session behind: it belongs to this process."""
        return {**self.__dict__, "_session": None}

    def _unpacked(self, value: Any) -> tuple[Tensor, ...]:
        if not self.ends[0]:
            return tuple(value)
        if isinstance(value, dict):
            return tuple(value[name] for name in self.takes)
        return value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True, eq=False)
class OnnxChain(Chain):
    """An ONNX model as a chain; everything that a `Chain` does, with `OnnxStage`s."""

    graph: OnnxGraph | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, model: Any, example: Any = None) -> OnnxChain:
        """Read a file or an `onnx.ModelProto`; needs no example.

        Raises `Unavailable` without onnx, `SettingError` for a model with branches or loops.
        """
        onnx = _imported("onnx")
        loaded = onnx.load(str(model)) if isinstance(model, (str, Path)) else model
        graph = OnnxGraph(onnx.shape_inference.infer_shapes(loaded))
        layers = tuple(graph.stage(layer, layer + 1) for layer in range(len(graph.starts)))
        return cls(graph.names, layers, {}, tuple(graph.crossing(cut) for cut in range(len(layers) + 1)), graph=graph)

    def taken(self, first: int, last: int) -> nn.Module:
        """Extract layers first..last-1 as one model, so that ONNX Runtime can fuse across them."""
        assert self.graph is not None
        return self.graph.stage(first, last).eval()

    def weights(self, layer: int, dtype: torch.dtype | None = None) -> dict[object, int]:
        """Bytes of each initialiser that a layer reads; they keep their type."""
        assert self.graph is not None
        return self.graph.weights(layer)


class OnnxGraph:
    """The nodes of a model in order; where layers begin and what crosses each cut."""

    def __init__(self, model: Any) -> None:
        self.model, self.nodes = model, list(model.graph.node)
        self.weights_by_name = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = tuple(put.name for put in model.graph.input if put.name not in self.weights_by_name)
        self.outputs = tuple(put.name for put in model.graph.output)
        nested = [
            node.op_type for node in self.nodes if any(item.HasField("g") or item.graphs for item in node.attribute)
        ]
        if nested:
            raise SettingError(
                f"The ONNX model has control flow ({', '.join(sorted(set(nested)))}), which cannot be cut",
                "Export it without branches and loops, or run it whole in one stage.",
            )
        require(bool(self.nodes), "The ONNX model has no nodes", "Give a model that computes something.")

    @cached_property
    def fixed(self) -> set[str]:
        """Values that depend on weights alone: not carried, but computed again where they are needed."""
        found = {"", *self.weights_by_name}
        for node in self.nodes:
            if set(node.input) <= found:
                found.update(node.output)
        return found

    @cached_property
    def starts(self) -> list[int]:
        """The nodes with which the layers begin: products, where all that crosses has a known type."""
        typed = {
            value.name for value in (*self.model.graph.value_info, *self.model.graph.input, *self.model.graph.output)
        }
        heavy = [place for place, node in enumerate(self.nodes) if self._multiplies(node)]
        return [0, *(place for place in heavy[1:] if set(self._live(place)) <= typed)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each layer: that of its first product."""
        names: list[str] = []
        for first, last in zip(self.starts, [*self.starts[1:], len(self.nodes)], strict=True):
            node = next((node for node in self.nodes[first:last] if self._multiplies(node)), self.nodes[first])
            name = node.name or node.op_type
            taken = sum(known == name or known.startswith(f"{name}#") for known in names)
            names.append(f"{name}#{taken + 1}" if taken else name)
        return tuple(names)

    def crossing(self, cut: int) -> tuple[str, ...]:
        """Names of the values that cross a cut."""
        if cut in (0, len(self.starts)):
            return self.outputs if cut else self.inputs
        return self._live(self.starts[cut])

    def stage(self, first: int, last: int) -> OnnxStage:
        """Extract layers first..last-1."""
        takes, gives = self.crossing(first), self.crossing(last)
        computed = [name for name in gives if name not in takes]
        used = {name for node in self._nodes(first, last) for name in node.input}
        extractor = _imported("onnx.utils").Extractor(self.model)
        part = extractor.extract_model([name for name in takes if name in used], computed)
        ends = first == 0, last == len(self.starts)
        return OnnxStage(part.SerializeToString(), takes, gives, ends)

    def weights(self, layer: int) -> dict[object, int]:
        """Bytes of the initialisers that the layer's nodes read, and those of what is computed from them alone."""
        wanted = {name for node in self._nodes(layer, layer + 1) for name in node.input}
        for node in reversed(self.nodes):
            if wanted & set(node.output) and set(node.output) <= self.fixed:
                wanted.update(node.input)
        sizes = _imported("onnx.numpy_helper")
        held = ((name, tensor) for name, tensor in self.weights_by_name.items() if name in wanted)
        return {name: int(sizes.to_array(tensor).nbytes) for name, tensor in held}

    def _nodes(self, first: int, last: int) -> list[Any]:
        ends = [*self.starts, len(self.nodes)]
        return self.nodes[ends[first] : ends[last]]

    def _live(self, place: int) -> tuple[str, ...]:
        """Values made before a node and needed from it on."""
        needed = {name for node in self.nodes[place:] for name in node.input} | set(self.outputs)
        made = (*self.inputs, *(name for node in self.nodes[:place] for name in node.output))
        return tuple(name for name in made if name in needed and name not in self.fixed)

    def _multiplies(self, node: Any) -> bool:
        if set(node.output) <= self.fixed:
            return False
        return node.op_type in PRODUCTS or any(_is_matrix(tensor) for tensor in self._weights_of(node))

    def _weights_of(self, node: Any) -> Iterator[Any]:
        return (self.weights_by_name[name] for name in node.input if name in self.weights_by_name)


def _is_matrix(tensor: Any) -> bool:
    return len([size for size in tensor.dims if size > 1]) >= 2


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(
            f"{name.partition('.')[0]} is not installed, and ONNX models need it", "pip install 'labkit[onnx]'"
        ) from error
