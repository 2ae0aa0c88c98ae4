"""One hop through labkit's whole pipeline: a stage that hands its input back, from `submit` to the result."""

from __future__ import annotations

from typing import Any

import torch

from labkit.sharding import Pipeline

from .hop import serve_hop

__all__ = ["EngineHop", "main"]


class EngineHop:
    """A pipeline of one stage: each request makes two hops, and the conductor's thread sees to both."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._pipeline = Pipeline([torch.nn.Identity()])

    def value(self, size_bytes: int, times: int) -> Any:
        """A tensor."""
        return torch.ones(1, size_bytes // 4)

    def bounce(self, value: Any) -> Any:
        """There and back."""
        return self._pipeline.submit(value).result()

    def close(self) -> None:
        """End it."""
        self._pipeline.close()


def main() -> None:
    """Answer the bench's requests."""
    serve_hop(EngineHop)
