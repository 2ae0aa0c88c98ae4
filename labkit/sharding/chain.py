"""A model as a row of layers, each taking one value and returning one: what can be cut, and how a part is taken out.

    value -> layer 0 -> value -> layer 1 -> value -> ... -> output        chain.stage(0, 2) holds layers 0 and 1

A value is a tensor, or tensors, None and plain values in nested tuples and dicts; the value between two layers is what
an edge between two stages has to carry. The user's module is only read: every stage is a copy of its own.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from labkit.errors import SettingError, require
from labkit.sharding.declared import declared_layers

__all__ = ["Chain", "Stage"]

_NO_CODE = compile("", "", "exec")  # for a forward that is not written in Python


class Stage(nn.Module):
    """Some neighbouring layers of a chain, one after the other; ready for inference, independent, can be pickled."""

    def __init__(self, names: tuple[str, ...], layers: list[nn.Module]) -> None:
        super().__init__()
        self.names = names
        self.layers = nn.ModuleList(layers)

    def forward(self, value: Any) -> Any:
        """Pass the value through all layers."""
        for layer in self.layers:
            value = layer(value)
        return value


@dataclass(frozen=True, eq=False)
class Chain:
    """Named layers in order; `refusals` says at which cuts it may not be parted, and why.

    Cut i lies before layer i. `carried[i]` names the values that cross cut i; one of them is what the next layer works
    on, the others are wanted further on (skip connections, masks) and are taken along, which costs their bytes on
    every link that they pass.

    >>> chain = Chain.of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    >>> len(chain), chain.names, chain.stage(1, 3)(torch.zeros(5, 8)).shape
    (3, ('0', '1', '2'), torch.Size([5, 2]))
    """

    names: tuple[str, ...]
    layers: tuple[nn.Module, ...]
    refusals: Mapping[int, str] = field(default_factory=dict)
    carried: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, model: Callable[..., Any], example: Any = None) -> Chain:
        """Read a model as a chain.

        An `nn.Sequential` gives its modules. A module with a method `chain() -> [(name, layer), ...]` gives those
        layers. Any other module, Keras models on the torch backend among them, is traced by `torch.export` with
        `example` (rows first; a tuple stands for several arguments, a dict for named ones): a layer then begins at
        each operation that multiplies, and a cut carries whatever is needed behind it. The traced chain is checked
        against the model before it is returned.

        Raises `SettingError` for a model that cannot be read so, with the reason.
        """
        layers = declared_layers(model)
        if layers is not None:
            names = tuple(name for name, _ in layers)
            modules = tuple(layer for _, layer in layers)
            return cls(names, modules, _written_into(names, modules), _plainly_carried(names))
        require(
            example is not None,
            f"{type(model).__name__} is no nn.Sequential and declares no chain()",
            "Give an example of its input, so that it can be traced: Chain.of(model, example).",
        )
        from labkit.sharding.exported import exported_layers  # loads torch.export, which a worker never needs

        traced = exported_layers(model, example)
        return cls(traced.names, traced.layers, traced.refusals, traced.carried)

    def __post_init__(self) -> None:
        require(
            0 < len(self.layers) == len(self.names) == len(set(self.names)),
            f"{len(self.layers)} layers with the names {self.names}",
            "Give at least one layer, and each its own name.",
        )

    def __len__(self) -> int:
        """Number of layers."""
        return len(self.layers)

    def cut_allowed(self, cut: int) -> bool:
        """Whether the chain may be parted before layer `cut`."""
        return 0 <= cut <= len(self) and cut not in self.refusals

    def stage(self, first: int, last: int) -> nn.Module:
        """Copy layers first..last-1 into a module of their own, in eval mode and without gradients.

        A weight that several of these layers share is shared in the copy too. To be sent to another process the
        user's own layers must be picklable, which lambdas and local classes are not.

        Raises `SettingError` for a range that is empty, or begins or ends where no cut is allowed.
        """
        self.check(first, last)
        return self.taken(first, last)

    def taken(self, first: int, last: int) -> nn.Module:
        """As `stage`, wherever the cuts lie; for measuring the layers one by one in their order."""
        try:
            layers = copy.deepcopy(list(self.layers[first:last]))
        except (TypeError, RuntimeError) as error:
            raise SettingError(
                f"Layers {self.names[first]!r} to {self.names[last - 1]!r} cannot be copied: {error}",
                "A stage is a copy; hold no locks, files or tensors with a gradient history in a layer.",
            ) from error
        return Stage(self.names[first:last], layers).eval().requires_grad_(False)

    def check(self, first: int, last: int) -> None:
        """Raise `SettingError` unless first..last-1 may be a stage."""
        require(
            0 <= first < last <= len(self),
            f"Layers {first}..{last - 1} are no stage of {len(self)} layers",
            f"Give 0 <= first < last <= {len(self)}.",
        )
        for cut in (first, last):
            reason = self.refusals.get(cut, "")
            require(not reason, f"No cut is allowed before layer {cut}, {self._name(cut)!r}", reason)

    def weights(self, layer: int, dtype: torch.dtype | None = None) -> dict[object, int]:
        """Bytes of each weight and buffer of a layer, cast to `dtype`; a tied one has one key in all its layers."""
        module = self.layers[layer]
        return {_key(tensor): _bytes(tensor, dtype) for tensor in (*module.parameters(), *module.buffers())}

    def fingerprint(self) -> str:
        """Name what the layers compute with, but not the weights' values: what their cost depends on."""
        text = hashlib.sha256()
        for name, layer in zip(self.names, self.layers, strict=True):
            text.update(f"{name}\n{layer!r}\n".encode())
            for part in layer.modules():
                text.update(getattr(type(part).forward, "__code__", _NO_CODE).co_code)
                text.update(str(getattr(part, "code", "")).encode())
            tensors = (*layer.named_parameters(), *layer.named_buffers())
            text.update(repr([(key, tuple(tensor.shape), str(tensor.dtype)) for key, tensor in tensors]).encode())
        return text.hexdigest()[:16]

    def _name(self, cut: int) -> str:
        return self.names[cut] if cut < len(self) else "output"


def _key(tensor: torch.Tensor) -> object:
    """Tell weights apart by where they lie; those that lie nowhere (meta tensors) by themselves."""
    return (tensor.data_ptr(), tensor.nbytes) if tensor.data_ptr() else id(tensor)


def _bytes(tensor: torch.Tensor, dtype: torch.dtype | None) -> int:
    cast = dtype is not None and tensor.is_floating_point()
    return tensor.numel() * (dtype.itemsize if cast and dtype is not None else tensor.itemsize)


def _written_into(names: tuple[str, ...], layers: tuple[nn.Module, ...]) -> dict[int, str]:
    """Refuse a cut before a layer that works in place: it would overwrite what may have to be sent again."""
    return {
        cut: f"{names[cut]!r} ({type(layer).__name__}) works in place and would overwrite the value on the edge."
        for cut, layer in enumerate(layers)
        if cut > 0 and getattr(layer, "inplace", False) is True
    }


def _plainly_carried(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return (("input",), *((name,) for name in names))
