"""A model that is ready to run: the network, what comes before it and what comes after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labkit.engine import Prepare
from labkit.errors import require
from labkit.models.plain import PreparePlain

__all__ = ["LoadedModel", "wrap"]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A network in eval mode with its preprocessing and its reading; what every engine and lab is given.

    `prepare` turns a payload into a row on the CPU, `module` maps rows [B, ...] on `device` to outputs [B, ...], and
    `read` turns one row of output into an answer for a person. The three may be used apart: an engine batches rows
    between `prepare` and `module`.
    """

    name: str
    task: str
    module: nn.Module
    prepare: Prepare
    read: Callable[[Tensor], Any]
    device: str = "cpu"

    def answer(self, payload: Any) -> Any:
        """Run one payload alone, without an engine, and return its answer.

        >>> wrap(lambda rows: rows * 2).answer([1.0, 2.0])
        tensor([2., 4.])
        """
        with torch.inference_mode():
            rows = self.prepare(payload).unsqueeze(0).to(self.device)
            return self.read(self.module(rows)[0])


class _Function(nn.Module):
    """A plain function in a module's place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, rows: Tensor) -> Any:
        """Whatever the function makes of the rows."""
        return self.function(rows)


def wrap(
    module_or_callable: Callable[..., Any],
    prepare: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> LoadedModel:
    """Put any `nn.Module`, or any function from rows [B, ...] to outputs [B, ...], into a model's place.

    A module is set to eval mode in place; its device is that of its parameters (a function counts as on the CPU).
    `prepare` is a `labkit.engine.Prepare` or a plain function; without one the payload itself is the row.

    >>> model = wrap(torch.nn.Linear(3, 2), name="tiny")
    >>> model.name, model.answer([1.0, 2.0, 3.0]).shape
    ('tiny', torch.Size([2]))
    """
    require(
        callable(module_or_callable),
        f"The model is a {type(module_or_callable).__name__}",
        "Give an nn.Module or a function.",
    )
    if isinstance(module_or_callable, nn.Module):
        module, called = module_or_callable, type(module_or_callable).__name__
    else:
        module, called = _Function(module_or_callable), getattr(module_or_callable, "__name__", "function")
    if not isinstance(prepare, Prepare):
        prepare = PreparePlain() if prepare is None else PreparePlain(prepare)
    first = next(iter(module.parameters()), None)
    return LoadedModel(
        name=name or called,
        task="your own",
        module=module.eval(),
        prepare=prepare,
        read=Tensor.detach,
        device="cpu" if first is None else str(first.device),
    )
