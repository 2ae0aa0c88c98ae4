"""Models that say themselves how they are made: an `nn.Sequential`, or a module with a method `chain()`.

    class Net(nn.Module):
        def chain(self) -> list[tuple[str, nn.Module]]:
            return [("stem", self.stem), *((f"block{i}", block) for i, block in enumerate(self.blocks)), ...]

Each layer takes one value. What a later layer needs besides (a mask, a skip connection) is a part of that value.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import ismethod
from typing import Any

from torch import nn

from labkit.errors import SettingError, require

__all__ = ["Call", "declared_layers"]


class Call(nn.Module):
    """A plain function in a layer's place."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, value: Any) -> Any:
        """Whatever the function makes of the value."""
        return self.function(value)

    def extra_repr(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__qualname__", type(self.function).__name__))


def declared_layers(model: object) -> list[tuple[str, nn.Module]] | None:
    """Return the layers that the model declares; None if it declares none.

    >>> [name for name, _ in declared_layers(nn.Sequential(nn.Sequential(nn.ReLU(), nn.Tanh()), nn.ReLU()))]
    ['0.0', '0.1', '1']
    """
    if callable(getattr(type(model), "chain", None)):
        return [(name, _layer(name, layer)) for name, layer in model.chain()]  # type: ignore[attr-defined]
    if isinstance(model, nn.Sequential) and _is_plain(model):
        require(len(model) > 0, "The nn.Sequential is empty", "Give it at least one module.")
        return list(_flat(model, ""))
    return None


def _flat(model: nn.Sequential, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    for name, layer in model.named_children():
        if isinstance(layer, nn.Sequential) and _is_plain(layer) and len(layer):
            yield from _flat(layer, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", layer


def _is_plain(model: nn.Sequential) -> bool:
    """Whether calling it does nothing but call its modules in order: no forward of its own, and no hooks."""
    return type(model).forward is nn.Sequential.forward and not model._forward_hooks and not model._forward_pre_hooks


def _layer(name: str, layer: object) -> nn.Module:
    if isinstance(layer, nn.Module):
        return layer
    if ismethod(layer) and isinstance(layer.__self__, nn.Module):
        raise SettingError(
            f"Layer {name!r} is a method of {type(layer.__self__).__name__}, so it would take all of that along",
            "Declare a small nn.Module with only the parts that this layer needs.",
        )
    require(callable(layer), f"Layer {name!r} is a {type(layer).__name__}", "Give an nn.Module or a function.")
    return Call(layer)
