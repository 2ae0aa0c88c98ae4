"""Values of every kind cross hosts, through the object store and from rank to rank; so do a stage's faults."""

import numpy as np
import pytest
import torch
from running_stages import Bad, until

from labkit.errors import ModelFailed, Unavailable, WorkerDied
from labkit.sharding.cluster import Cluster
from labkit.sharding.depot import Source
from labkit.sharding.health import Health
from labkit.sharding.nested import leaves

WAIT_S = 100.0
pytestmark = pytest.mark.timeout(400)

VALUES = {
    "seven rows": torch.randn(7, 3),
    "one row": torch.randn(1, 3),
    "no rows": torch.randn(0, 3),
    "large": torch.randn(4, 300_000),
    "views": (torch.arange(24.0).reshape(6, 4).T.reshape(4, 6).T, torch.ones(6, 1).expand(6, 4)),
    "dtypes": {
        str(kind): torch.ones(3, 2, dtype=kind)
        for kind in (
            torch.bool,
            torch.uint8,
            torch.int64,
            torch.bfloat16,
            torch.float16,
            torch.float64,
            torch.complex64,
        )
    },
    "nested": {"pair": (torch.randn(3, 2), [torch.arange(3), None, "text"]), "array": np.arange(3), "flag": True},
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_it_was(obedient, name):
    returned = obedient.submit(VALUES[name]).result(WAIT_S)
    assert repr(returned) == repr(VALUES[name])
    for one, other in zip(leaves(returned), leaves(VALUES[name]), strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()


def test_shapes_may_change_from_one_request_to_the_next(obedient):
    inputs = [torch.randn(2, length, 4) for length in (5, 70_000, 7, 3)]
    futures = [obedient.submit(one) for one in inputs]
    assert all(torch.equal(future.result(WAIT_S), one) for future, one in zip(futures, inputs, strict=True))


def test_outputs_are_the_callers_to_keep_and_to_change(obedient):
    rows = torch.zeros(2, 50_000)
    first, second = (obedient.submit(rows).result(WAIT_S) for _ in range(2))
    first.add_(1)
    assert second.sum() == rows.sum() == 0


def test_values_go_from_rank_to_rank_only_where_that_is_wanted(obedient):
    obedient.submit(torch.ones(4)).result(WAIT_S)
    carrier = obedient._conductor._carrier
    wires = {wire.backend for wire, _ in carrier._wiring._wires.values()}
    assert wires == ({"gloo"} if carrier._cluster.edges == "gloo" else set())


def test_workers_are_spread_over_the_hosts(obedient):
    assert len({hand.remote.address[0] for hand in obedient._crew.hands}) == 2


def test_a_value_that_is_lost_lets_its_microbatch_begin_anew(obedient):
    values = torch.ones(2, 60_000)
    obedient.submit(values).result(WAIT_S)
    before, steps = obedient.snapshot(), len(obedient.records.steps())
    first, second = (obedient._crew.seats[number].hand.remote for number in range(2))
    source, lost = second._source, []

    def lose_once(number, slot):
        if lost:
            return source(number, slot)
        lost.append(number)
        if slot.holder is None:
            # Nobody ever does job 100,000, so this never arrives.
            slot.ref = first.call("work", 100_000, b"", Source(-1, (), 1.0), -1, False)
            return source(number, slot)
        # It is still with the first worker, which is asked for something else.
        return source(-1, slot)._replace(slot=number)

    second._source = lose_once
    assert torch.equal(obedient.submit(values).result(WAIT_S), values)
    assert len(lost) == 1
    after = obedient.snapshot()
    assert (after.losses, after.failed, after.ok) == (before.losses, before.failed, before.ok + 1)
    stages = [step.stage for step in obedient.records.steps()[steps:]]
    # The first stage ran twice: what the second should have had was nowhere.
    assert stages == ["stage0", "stage0", "stage1"]
    epochs = [wire.name.partition("/")[2] for wire, _ in obedient._conductor._carrier._wiring._wires.values()]
    assert epochs == ([] if obedient._conductor._carrier._cluster.edges == "never" else ["1"])


def test_an_exception_in_a_stage_reaches_the_caller_and_nobody_else(obedient):
    losses = obedient.snapshot().losses
    good = [obedient.submit(torch.ones(3)) for _ in range(3)]
    bad = obedient.submit({"do": "raise", "rows": torch.ones(3)})
    later = obedient.submit(torch.ones(2))
    with pytest.raises(ModelFailed, match=r"stage 0 .* raised .*Bad: told to raise") as failed:
        bad.result(WAIT_S)
    assert isinstance(failed.value.__cause__, Bad)
    assert "obey" in failed.value.__cause__.__notes__[0]
    assert all(torch.equal(future.result(WAIT_S), torch.ones(3)) for future in good)
    assert torch.equal(later.result(WAIT_S), torch.ones(2))
    assert obedient.snapshot().losses == losses


@pytest.mark.parametrize("obedient", ["never"], indirect=True)
def test_a_microbatch_that_kills_two_workers_fails_alone_with_its_reason(obedient):
    losses = obedient.snapshot().losses
    poison = obedient.submit({"do": "abort", "rows": torch.ones(1)})
    after = [obedient.submit(torch.full((3,), float(number))) for number in range(3)]
    with pytest.raises(WorkerDied, match=r"has killed 2 workers of stage 0.*process has died"):
        poison.result(WAIT_S)
    for number, future in enumerate(after):
        assert torch.equal(future.result(WAIT_S), torch.full((3,), float(number)))
    assert obedient.snapshot().losses == losses + 2


def test_steps_are_told_in_the_time_of_the_controller(obedient, monkeypatch):
    remote = obedient._crew.seats[1].hand.remote
    # All hosts of this cluster have the same clock: what is measured is the error, at most half of a round trip.
    round_s, ahead_s = min(remote._offset._samples)
    assert abs(ahead_s) <= round_s / 2 + 1e-6
    monkeypatch.setattr(remote._offset, "_ahead_s", 5000.0)
    obedient.submit(torch.ones(2)).result(WAIT_S)
    first, second = obedient.records.steps()[-2:]
    assert second.started_s <= second.finished_s
    assert first.finished_s - second.finished_s > 4000


@pytest.mark.parametrize("obedient", ["gloo"], indirect=True)
def test_a_killed_worker_costs_a_retry_and_no_answer(obedient):
    assert until(lambda: obedient.snapshot().health is Health.RUNNING, WAIT_S)
    before = obedient.snapshot()
    values = torch.arange(7.0).unsqueeze(1)
    futures = []
    for number in range(30):
        futures.append(obedient.submit(values + number))
        if number == 15:
            obedient.inject(1, "kill")
    for number, future in enumerate(futures):
        assert torch.equal(future.result(WAIT_S), values + number)
    after = obedient.snapshot()
    assert (after.losses - before.losses, after.ok - before.ok, after.failed) == (1, 30, before.failed)


def test_a_cluster_without_room_is_refused_with_what_it_has(pipeline_of):
    with pytest.raises(Unavailable, match=r"no room for 2 workers of 50 CPU.*hosts with 3 CPU; 3 CPU"):
        pipeline_of([abs, abs], carrier=Cluster(cpus=50, start_s=1.0))
