"""A real model for the sharding benchmark, and either kind of model by what describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from labkit.models import load
from labkit.sharding import Chain

from .mlp import Mlp

__all__ = ["BenchModel", "Net", "model_of"]

PHOTO = (3, 224, 224)


class BenchModel(Protocol):
    """What a system is given: layers to cut between, and microbatches to send through them."""

    def layers(self) -> list[nn.Module]:
        """The layers, ready for inference."""
        ...

    def microbatch(self, seed: int = 0) -> torch.Tensor:
        """Random input."""
        ...


@dataclass(frozen=True, slots=True)
class Net:
    """The vision model called `name`, with its real weights; a microbatch has `rows` photos of noise."""

    name: str
    rows: int

    def chain(self) -> Chain:
        """The model as labkit cuts it."""
        return Chain.of(load(self.name).module)

    def layers(self) -> list[nn.Module]:
        """Its layers, ready for inference."""
        return list(self.chain().layers)

    def microbatch(self, seed: int = 0) -> torch.Tensor:
        """Random input [rows, 3, 224, 224]."""
        return torch.randn(self.rows, *PHOTO, generator=torch.Generator().manual_seed(seed))


def model_of(described: Mapping[str, Any]) -> BenchModel:
    """A `Net` where a name is given, else an `Mlp`."""
    return Net(**described) if "name" in described else Mlp(**described)
