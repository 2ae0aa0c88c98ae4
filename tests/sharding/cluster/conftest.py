"""A Ray cluster of two hosts on this machine, for the whole session; it takes up to half a minute to start."""

import contextlib
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labkit.sharding.cluster import Cluster
from labkit.sharding.pipeline import Pipeline

FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "running")]
STORE_BYTES = 100 * 1024**2
# Not 127.0.0.1, for which Ray would put the machine's own address.
HEAD, SIDE = "127.0.0.2", "127.0.0.3"
# Ray tells nobody that it ran, ends no worker because others on this machine need memory, notices a lost host soon (a
# slow one has the usual ten seconds for each answer), and gives a stopped worker one second instead of five.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_health_check_initial_delay_ms": "200",
    "RAY_health_check_period_ms": "200",
    "RAY_health_check_failure_threshold": "5",
    "RAY_kill_worker_timeout_milliseconds": "1000",
    "PYTHONPATH": os.pathsep.join(FOLDERS),
}

sys.path[:0] = FOLDERS

from cluster_stages import obey  # noqa: E402  # found only now


class Hosts:
    """The head, to which the tests are connected, and one more that can be lost and comes back."""

    def __init__(self, folder: str) -> None:
        from ray.cluster_utils import Cluster

        head = self._node(HEAD, 3) | {"temp_dir": folder, "dashboard_agent_listen_port": 0}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._side = self._cluster.add_node(**self._node(SIDE, 3))
        self.address = self._cluster.address

    def lose(self) -> None:
        """Kill the second host."""
        self._cluster.remove_node(self._side, allow_graceful=False)
        self._side = None

    def mend(self) -> None:
        """Have a second host again."""
        if self._side is None:
            self._side = self._cluster.add_node(**self._node(SIDE, 3))

    def close(self) -> None:
        self._cluster.shutdown()

    def _node(self, host: str, cpus: int) -> dict:
        return {
            "num_cpus": cpus,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
            "node_ip_address": host,
        }


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    ray = pytest.importorskip("ray")
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update(QUIET)
    # Short: the sockets in it have long names of their own.
    folder = Path(tempfile.gettempdir()) / f"r{uuid.uuid4().hex[:6]}"
    made = Hosts(str(folder))
    ray.init(made.address, log_to_driver=False, logging_level="ERROR", _node_ip_address=HEAD)
    yield made
    ray.shutdown()
    made.close()
    shutil.rmtree(folder, ignore_errors=True)
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def pipeline_of(hosts) -> Iterator[Callable[..., Pipeline]]:
    hosts.mend()
    with contextlib.ExitStack() as stack:
        yield lambda stages, **settings: opened(stack, stages, **settings)


@pytest.fixture(scope="module", params=["never", "gloo"])
def obedient(request, hosts) -> Iterator[Pipeline]:
    """A pipeline of two stages that do as they are told; values go through the object store, or from rank to rank."""
    hosts.mend()
    with contextlib.ExitStack() as stack:
        carrier = Cluster(edges=request.param)
        yield opened(stack, [obey, obey], carrier=carrier, microbatch_rows=2)


def opened(stack, stages, **settings) -> Pipeline:
    pipeline = Pipeline(stages, **{"carrier": "ray"} | settings)
    stack.callback(pipeline.close, drain=False)
    return pipeline
