"""One hop through gloo: send and recv in a group of two on the loopback interface."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from .hop import child, serve_hop

__all__ = ["GlooHop", "join_group", "main"]


class GlooHop:
    """A group of two; the receiver has to know beforehand what will come."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._folder = tempfile.TemporaryDirectory()
        store = Path(self._folder.name, "store")
        self._echo = child(_echo, str(store))
        join_group(str(store), 0, 2)

    def value(self, size_bytes: int, times: int) -> Any:
        """A tensor, announced to the echo."""
        dist.send(torch.tensor([size_bytes, times]), 1)
        return torch.ones(size_bytes // 4)

    def bounce(self, value: Any) -> Any:
        """There and back, into a tensor of our own."""
        back = torch.empty_like(value)
        dist.send(value, 1)
        dist.recv(back, 1)
        return back

    def close(self) -> None:
        """Leave the group, and the folder in which it met."""
        dist.send(torch.zeros(2, dtype=torch.int64), 1)
        self._echo.join()
        dist.destroy_process_group()
        self._folder.cleanup()


def join_group(store: str, rank: int, ranks: int) -> None:
    """Join the group that meets in the file `store`; what it says stays on this machine."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    dist.init_process_group("gloo", store=FileStore(store, ranks), rank=rank, world_size=ranks)


def _echo(store: str) -> None:
    torch.set_num_threads(1)
    join_group(store, 1, 2)
    announced = torch.zeros(2, dtype=torch.int64)
    while True:
        dist.recv(announced, 0)
        size_bytes, times = announced.tolist()
        if not times:
            break
        for _ in range(times):
            value = torch.empty(size_bytes // 4)
            dist.recv(value, 0)
            dist.send(value, 0)
    dist.destroy_process_group()


def main() -> None:
    """Answer the bench's requests."""
    serve_hop(GlooHop)
