"""A host is lost, or a worker hangs, while requests run: every one ends once, with the right value."""

import pytest
import torch
from running_stages import Counter, Scale, Work, until

from labkit.sharding.cluster import Cluster
from labkit.sharding.health import Health
from labkit.sharding.patience import Patience
from labkit.sharding.recovery import Budget
from labkit.sharding.state import Stateful

WAIT_S = 100.0
pytestmark = pytest.mark.timeout(400)
SIDE = "127.0.0.3"
# Large enough to lie in the object store of the host that computed them, and to be lost with it.
WIDE = 60_000


def on_the_side(pipeline):
    return [hand for hand in pipeline._crew.hands if hand.remote.address[0] == SIDE]


def lose_while_running(pipeline, hosts, factor, count=30):
    """Submit requests, lose the second host amid them, and check every answer."""
    assert on_the_side(pipeline)
    values = torch.arange(3.0).unsqueeze(1).expand(3, WIDE)
    expected = values * factor
    assert torch.equal(pipeline.submit(values).result(WAIT_S), expected)
    endings = []
    futures = [pipeline.submit(values + number) for number in range(count)]
    for future in futures:
        future.add_done_callback(endings.append)
    futures[count // 4].result(WAIT_S)
    hosts.lose()
    assert not all(future.done() for future in futures)
    for number, future in enumerate(futures):
        assert torch.equal(future.result(WAIT_S), expected + number * factor)
    assert until(lambda: len(endings) == count, WAIT_S)
    assert sorted(row.request for row in pipeline.records.requests()) == list(range(count + 1))
    snapshot = pipeline.snapshot()
    assert (snapshot.ok, snapshot.failed) == (count + 1, 0)
    assert snapshot.losses >= 1


def test_a_lost_host_costs_retries_and_no_answer_and_its_stages_run_elsewhere(hosts, pipeline_of):
    pipeline = pipeline_of([Scale(2), Work(200), Scale(3)], microbatch_rows=1)
    lose_while_running(pipeline, hosts, 6)
    assert until(lambda: pipeline.snapshot().health is Health.RUNNING, WAIT_S)
    assert len(pipeline.snapshot().stages) == 3
    assert not on_the_side(pipeline)


def test_where_no_other_host_has_room_the_model_is_cut_anew(hosts, pipeline_of):
    # Each worker takes a host of its own, and tensors go from rank to rank.
    carrier = Cluster(cpus=3, edges="gloo")
    layers = [Scale(2), Work(200), Scale(3), Scale(1)]
    pipeline = pipeline_of(layers, carrier=carrier, boundaries=(0, 2, 4), microbatch_rows=1, budget=Budget(restarts=1))
    lose_while_running(pipeline, hosts, 6)
    assert until(lambda: pipeline.snapshot().health is Health.RUNNING, WAIT_S)
    assert [(stage.first, stage.last) for stage in pipeline.snapshot().stages] == [(0, 4)]
    assert "room for 1 workers of 3 CPU, not for 2" in " ".join(pipeline.snapshot().notes)


def test_a_hung_worker_is_replaced_and_a_sequence_goes_on_where_it_was(pipeline_of):
    patience = Patience(floor_s=1.0, load_s=100.0, silent_s=30.0, frozen_s=60.0)
    pipeline = pipeline_of([Scale(1), Stateful(Counter())], patience=patience)
    with pipeline.sequence() as sequence:
        totals = [sequence.submit(torch.tensor([float(step)])).result(WAIT_S).item() for step in range(4)]
        pipeline.inject(1, "hang")
        totals += [sequence.submit(torch.tensor([float(step)])).result(WAIT_S).item() for step in range(4, 6)]
    assert totals == [0.0, 1.0, 3.0, 6.0, 10.0, 15.0]
    assert pipeline.snapshot().losses == 1
