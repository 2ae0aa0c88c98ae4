"""The systems that are set side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["BATCHED", "BENTOML", "LABKIT", "LITSERVE", "MOSEC", "REAL_MODELS", "System"]


@dataclass(frozen=True, slots=True)
class System:
    """One system, and the worker in `peers/` that runs it.

    `kind`: labkit's own worker runs in this environment; an in-process peer and an HTTP peer run in one of their own,
    made from `requirements`. The worker of an HTTP peer starts a server, so it is used for one run and then ended.
    """

    name: str
    worker: str
    kind: Literal["own", "in-process", "http"]
    version: str = ""
    requirements: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


LABKIT = System("labkit", "labkit_batcher", "own")
REAL_MODELS = System("labkit", "labkit_models", "own")
BENTOML = System("BentoML", "bentoml_cork", "in-process", "1.4.40", "bentoml")
BATCHED = System("batched", "batched_aio", "in-process", "0.1.5", "batched")
LITSERVE = System("LitServe", "litserve_http", "http", "0.2.19", "litserve")
MOSEC = System("mosec", "mosec_http", "http", "0.9.8", "mosec")
