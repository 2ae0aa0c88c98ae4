"""Nothing stays behind on the cluster: no actor, no process, no placement group, no thread."""

import os
import threading

import pytest
import torch
from running_stages import same, until

from labkit.errors import EngineClosed

WAIT_S = 100.0
pytestmark = pytest.mark.timeout(400)


def groups(hosts):
    """The placement groups that have not been removed."""
    import ray

    return {name for name, group in ray.util.placement_group_table().items() if group["state"] != "REMOVED"}


def threads():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("labkit", "pipeline"))}


def gone(pid):
    return not os.path.exists(f"/proc/{pid}")


def test_closing_leaves_nothing_also_of_workers_that_are_stopped(hosts, pipeline_of):
    before = groups(hosts), threads()
    pipeline = pipeline_of([same, same], microbatch_rows=1)
    # One more than there are bundles.
    pipeline.scale(1, 2).result(WAIT_S)
    assert until(lambda: all(hand.remote.pid for hand in pipeline._crew.hands), WAIT_S)
    remotes = [hand.remote for hand in pipeline._crew.hands]
    workers = [remote.pid for remote in remotes]
    assert len(groups(hosts)) == len(before[0]) + 1
    assert len(workers) == 3
    assert not any(gone(pid) for pid in workers)
    pipeline.inject(0, "hang")
    futures = [pipeline.submit(torch.ones(4)) for _ in range(5)]
    pipeline.close(drain=False)
    assert all(future.done() for future in futures)
    with pytest.raises(EngineClosed):
        pipeline.submit(torch.ones(1))
    assert all(remote.connection.closed and remote._line.closed for remote in remotes)
    # Ray's daemon gives a stopped process a moment.
    assert until(lambda: all(gone(pid) for pid in workers), WAIT_S)
    assert until(lambda: (groups(hosts), threads()) == before, WAIT_S)
