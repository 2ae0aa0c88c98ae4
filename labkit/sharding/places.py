"""Where on a Ray cluster the workers run: one bundle of a placement group for each, spread over the hosts."""

from __future__ import annotations

import importlib
from typing import Any

from labkit.errors import Unavailable
from labkit.sharding.cluster import Cluster

__all__ = ["Places"]


class Places:
    """So many bundles, on as many hosts as there are. Ray moves those of a lost host to others that have room.

    Raises `Unavailable` if the cluster has no room for them within `cluster.start_s`.
    """

    def __init__(self, ray: Any, cluster: Cluster, workers: int) -> None:
        self._ray, self._cluster, self._workers = ray, cluster, workers
        self._groups: Any = importlib.import_module("ray.util.placement_group")
        self._strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        kind = "SPREAD" if len(self._hosts()) > 1 else "PACK"
        self._group = self._groups.placement_group([cluster.needs] * workers, strategy=kind)
        if not self._group.wait(cluster.start_s):
            self.close()
            raise self._no_room(f"no room for {workers} workers of {_described(cluster.needs)}")

    def check(self, workers: int) -> None:
        """Raise `Unavailable` if the hosts that are left could not hold so many even if nothing else ran there."""
        room = self._room()
        if room < workers:
            raise self._no_room(f"room for {room} workers of {_described(self._cluster.needs)}, not for {workers}")

    def options(self, taken: int) -> dict[str, Any]:
        """How to start one more worker while `taken` run: in a free bundle, or anywhere when all are in use."""
        self.check(taken + 1)
        strategy: Any = "SPREAD"
        if taken < self._workers:
            strategy = self._strategies.PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=-1)
        return {"num_cpus": self._cluster.cpus, "num_gpus": self._cluster.gpus, "scheduling_strategy": strategy}

    def close(self) -> None:
        """Give the bundles back; Ray ends whatever may still run in them."""
        self._groups.remove_placement_group(self._group)

    def _hosts(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _room(self) -> int:
        needs = self._cluster.needs
        return sum(int(min(host.get(name, 0.0) / amount for name, amount in needs.items())) for host in self._hosts())

    def _no_room(self, problem: str) -> Unavailable:
        hosts = "; ".join(_described({name: host.get(name, 0.0) for name in ("CPU", "GPU")}) for host in self._hosts())
        return Unavailable(
            f"the Ray cluster has {problem}; it has hosts with {hosts}", "Add hosts, or use fewer stages."
        )


def _described(resources: dict[str, float]) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount) or "nothing"
