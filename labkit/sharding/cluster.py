"""Which Ray cluster a pipeline's workers run on, and what each of them gets there."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

from labkit.errors import Unavailable, require
from labkit.sharding.patience import Patience

__all__ = ["Cluster", "join", "leave"]

Edges = Literal["auto", "never", "gloo"]

_OURS = "127.0.0.1"

_lock = Lock()
_users = 0
_joined_here = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster as a carrier: `Pipeline(stages, carrier=Cluster(gpus=1))`; `carrier="ray"` is `Cluster()`.

    `address` is that of a cluster ("auto": the one that runs on this machine). Without one, the pipeline uses what this
    process is connected to already, else `RAY_ADDRESS`, else it starts a Ray of its own here and ends it when closed.
    Each worker gets `cpus` and `gpus`; it sees its own GPU as "cuda:0".

    `edges` says when tensors go from worker to worker through a group of two ranks instead of the object store:
    "auto", over NCCL where both ends are CUDA devices; "gloo", also over gloo between CPUs; "never".

    A worker that has not started after `start_s` is given up. A value that has not arrived after `read_s` (longer for
    one of more than a few MiB) counts as lost with its host: its microbatch begins anew.

    >>> Cluster(edges="gloo").backend_for("cpu"), Cluster().backend_for("cpu"), Cluster().backend_for("cuda:1")
    ('gloo', '', 'nccl')
    """

    address: str = ""
    cpus: float = 1.0
    gpus: float = 0.0
    edges: Edges = "auto"
    start_s: float = 60.0
    read_s: float = 2.0

    def __post_init__(self) -> None:
        for name in ("cpus", "start_s", "read_s"):
            value = getattr(self, name)
            require(value > 0, f"{name} is {value}; it must be positive", "Give a number above 0.")
        require(self.gpus >= 0, f"gpus is {self.gpus}; it must not be negative", "Give 0 for none.")
        known = ("auto", "never", "gloo")
        require(self.edges in known, f"edges is {self.edges!r}", f"Give one of {', '.join(known)}.")

    @property
    def needs(self) -> dict[str, float]:
        """What one worker takes, in Ray's words."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})

    @property
    def patience(self) -> Patience:
        """The limits of waiting where messages cross a network and a worker takes seconds to start."""
        return Patience(floor_s=5.0, load_s=120.0, ping_s=1.0, silent_s=10.0, frozen_s=20.0)

    def backend_for(self, device: str) -> str:
        """What connects two workers on such devices: "nccl", "gloo", or nothing."""
        kind = device.partition(":")[0]
        return {("auto", "cuda"): "nccl", ("gloo", "cuda"): "nccl", ("gloo", "cpu"): "gloo"}.get((self.edges, kind), "")

    def limit_s(self, size_bytes: int) -> float:
        """How long a value may be on its way; a slow network moves 50 MB a second."""
        return self.read_s + size_bytes / 50e6


def join(cluster: Cluster, workers: int) -> Any:
    """Return the module ray, connected; `leave` it again. Raises `Unavailable` where that cannot be."""
    global _users, _joined_here
    if sys.platform == "win32":
        raise Unavailable("carrier='ray' needs Linux or macOS", "Use carrier='process'.")
    ray = _ray()
    with _lock:
        if not ray.is_initialized():
            _joined_here = _connect(ray, cluster, workers)
        _users += 1
    return ray


def leave(ray: Any) -> None:
    """Undo `join`: the last pipeline ends a Ray that was started, or disconnects one that was joined, for pipelines."""
    global _users, _joined_here
    with _lock:
        _users -= 1
        if _joined_here and not _users:
            _joined_here = False
            ray.shutdown()


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise Unavailable("carrier='ray' needs Ray, which is not installed", "pip install 'labkit[cluster]'") from error


def _connect(ray: Any, cluster: Cluster, workers: int) -> bool:
    address = cluster.address or os.environ.get("RAY_ADDRESS", "")
    settings: dict[str, Any] = {"address": address}
    if not address:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        cores = max(os.cpu_count() or 1, int(workers * cluster.cpus + 0.999))
        settings = {"address": "local", "num_cpus": cores, "include_dashboard": False, "_node_ip_address": _OURS}
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", **settings)
    except Exception as error:
        where = f"the Ray cluster at {address!r}" if address else "a Ray on this machine"
        problem = f"{where} cannot be reached: {type(error).__name__}: {error}"
        raise Unavailable(problem, "Start one with `ray start --head`, or look at its logs.") from error
    return True
