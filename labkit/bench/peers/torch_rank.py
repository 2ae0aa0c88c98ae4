"""One rank of torch.distributed.pipelining, forward only, over gloo on the loopback interface.

Every rank has to call `step` with the same counts, so the bench asks all ranks at once; the last one has the outputs.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _ScheduleForwardOnly

from labkit.devices import keep_freed_memory

from .hop_gloo import join_group
from .net import model_of
from .protocol import serve

__all__ = ["TorchRank", "main"]


class _Contiguous(nn.Module):
    """gloo sends no other tensors, and convolutions answer with channels last."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """The value, copied where it has to be."""
        return value.contiguous()


class TorchRank:
    """A rank, once it has joined."""

    schedule: _ScheduleForwardOnly
    batch: tuple[torch.Tensor, ...] = ()

    def join(
        self,
        model: dict[str, Any],
        boundaries: list[int],
        rank: int,
        store: str,
        microbatches: int,
        threads: int,
        keep_memory: bool = False,
    ) -> dict[str, Any]:
        """Join the group that meets in the file `store`, and run one step; answer with the last output's mean size."""
        torch.set_num_threads(threads)
        if keep_memory:
            keep_freed_memory()
        ranks = len(boundaries) - 1
        join_group(store, rank, ranks)
        net = model_of(model)
        module = nn.Sequential(*net.layers()[boundaries[rank] : boundaries[rank + 1]], _Contiguous())
        stage = PipelineStage(module, rank, ranks, torch.device("cpu"))
        self.schedule = _ScheduleForwardOnly(stage, n_microbatches=microbatches)
        self.batch = (torch.cat([net.microbatch()] * microbatches),) if rank == 0 else ()
        output = self._step()
        return {"size": None if output is None else float(output.abs().mean())}

    def run(self, steps: int) -> dict[str, float]:
        """Step back to back; the first step fills the pipeline and does not count."""
        self._step()
        begun_s = time.perf_counter()
        for _ in range(steps):
            self._step()
        return {"wall_s": time.perf_counter() - begun_s}

    @torch.inference_mode()
    def _step(self) -> Any:
        return self.schedule.step(*self.batch)


def main() -> None:
    """Answer the bench's requests."""
    rank = TorchRank()
    serve({"join": rank.join, "run": rank.run})
