"""The model of the sharding benchmark: blocks that are all alike, so that every system cuts it in the same places."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["Mlp"]


@dataclass(frozen=True, slots=True)
class Mlp:
    """`blocks` times a linear layer and a GELU, all `width` wide; a microbatch has `rows`. Same weights everywhere."""

    blocks: int
    width: int
    rows: int

    def layers(self) -> list[nn.Module]:
        """The blocks, ready for inference."""
        torch.manual_seed(0)
        return [nn.Sequential(nn.Linear(self.width, self.width), nn.GELU()).eval() for _ in range(self.blocks)]

    def microbatch(self, seed: int = 0) -> torch.Tensor:
        """Random input [rows, width]."""
        return torch.randn(self.rows, self.width, generator=torch.Generator().manual_seed(seed))
