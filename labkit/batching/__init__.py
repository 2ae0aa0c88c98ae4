"""Dynamic batching: many waiting requests, one run of the model. Start with `Batcher`; README.md argues the design."""

from labkit.batching.batcher import Batcher, BatcherSnapshot
from labkit.batching.collate import Lengths
from labkit.batching.decorator import BatchedFunction, batched
from labkit.batching.limits import Limits
from labkit.batching.policy import (
    AIMD,
    Decision,
    Deferral,
    FixedSize,
    Goodput,
    Greedy,
    MaxWait,
    Policy,
    PreferredSizes,
    Run,
    View,
    WaitUntil,
)
from labkit.batching.pool import PoolSnapshot, StagingPool
from labkit.batching.service import ServiceModel

__all__ = [
    "AIMD",
    "BatchedFunction",
    "Batcher",
    "BatcherSnapshot",
    "Decision",
    "Deferral",
    "FixedSize",
    "Goodput",
    "Greedy",
    "Lengths",
    "Limits",
    "MaxWait",
    "Policy",
    "PoolSnapshot",
    "PreferredSizes",
    "Run",
    "ServiceModel",
    "StagingPool",
    "View",
    "WaitUntil",
    "batched",
]
