"""Some blocks by themselves: input in this process, output dropped, nothing in between. What a pipeline is held to."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from labkit.devices import keep_freed_memory

from .net import model_of
from .protocol import serve

__all__ = ["BareStage", "main"]


class BareStage:
    """The blocks that `load` has named, and their input."""

    def __init__(self) -> None:
        self.module = nn.Sequential()
        self.given = torch.zeros(0)

    @torch.inference_mode()
    def load(self, model: dict[str, Any], first: int, last: int, threads: int) -> dict[str, Any]:
        """Make blocks `first` to `last - 1`, and the input that they would get; answer with the output's mean size."""
        torch.set_num_threads(threads)
        keep_freed_memory()
        net = model_of(model)
        layers = net.layers()
        self.given = nn.Sequential(*layers[:first])(net.microbatch())
        self.module = nn.Sequential(*layers[first:last])
        return {"size": float(self.module(self.given).abs().mean())}

    @torch.inference_mode()
    def run(self, microbatches: int) -> dict[str, float]:
        """Compute so many microbatches, one after the other."""
        begun_s = time.perf_counter()
        for _ in range(microbatches):
            self.module(self.given)
        return {"wall_s": time.perf_counter() - begun_s}


def main() -> None:
    """Answer the bench's requests."""
    stage = BareStage()
    serve({"load": stage.load, "run": stage.run})
