"""Imported by the fork server alone, before any worker is forked: what a first call costs is paid here, once.

The first matrix product of a process loads kernels for a few hundred milliseconds. One thread only: a process that has
a pool of OpenMP threads must not be forked.
"""

import torch
from torch import nn

from labkit.sharding.worker import main

__all__ = ["main", "warm_up"]


def warm_up() -> None:
    """Call the operations that most models are made of, on a few numbers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        rows = torch.ones(4, 3, 8, 8)
        flat = nn.Linear(64, 64)(nn.Conv2d(3, 4, 3, padding=1)(rows).flatten(2))
        hidden = nn.functional.layer_norm(nn.functional.gelu(flat), (64,))
        nn.functional.scaled_dot_product_attention(hidden, hidden, hidden).softmax(-1).relu()
        hidden.bfloat16() @ hidden.bfloat16().mT
    torch.set_num_threads(threads)


warm_up()
