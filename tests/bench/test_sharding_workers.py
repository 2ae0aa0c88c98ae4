"""Real worker processes of the sharding benchmark, on a very small model, and what is left of them."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from labkit.bench.crew import ask_all, leave
from labkit.bench.fleet import Fleet
from labkit.bench.hops import GLOO, PIPE, PYZMQ, RING
from labkit.bench.losses import LABKIT
from labkit.bench.peers.bare_stage import BareStage
from labkit.bench.peers.net import model_of
from labkit.bench.system import System

MODEL = {"blocks": 4, "width": 16, "rows": 4}
RANKS = [System(f"rank {rank}", "torch_rank", "own") for rank in range(2)]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc for what is left")


def of_groups(groups: set[int]) -> list[int]:
    """Living processes that belong to one of the process groups."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(group) in groups and state != "Z":
            found.append(int(folder.name))
    return found


def gone(groups: set[int]) -> bool:
    """Whether all of them end, within some seconds."""
    until_s = time.monotonic() + 10
    while of_groups(groups) and time.monotonic() < until_s:
        time.sleep(0.02)
    return not of_groups(groups)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A fleet of real workers, of which nothing may be left."""
    shared = set(os.listdir("/dev/shm"))
    with Fleet(()) as made:
        yield made
        groups = {worker._process.pid for worker in made._workers.values()}
    assert gone(groups)
    assert not [name for name in set(os.listdir("/dev/shm")) - shared if "labkit" in name]


def test_the_pipeline_runs_is_hurt_and_slowed_and_answers_rightly(fleet: Fleet) -> None:
    opened = fleet.ask(LABKIT, "open", model=MODEL, boundaries=[0, 2, 4], balanced=True, spares=1)
    whole = model_of(MODEL)
    with torch.inference_mode():
        expected = torch.nn.Sequential(*whole.layers())(whole.microbatch())
    assert opened["size"] == pytest.approx(float(expected.abs().mean()), rel=1e-5)
    run = fleet.ask(LABKIT, "run", seconds=0.2, warmup_s=0.05)
    assert run["per_s"] > 0
    assert (run["wrong"], run["boundaries"]) == (0, [0, 2, 4])
    assert fleet.ask(LABKIT, "quiet", seconds=0.1)["gap_s"] > 0
    hurt = fleet.ask(LABKIT, "fault", how="kill", stage=1, lead_s=0.1)
    assert 0 < hurt["noticed_s"] <= hurt["replaced_s"]
    assert hurt["asked"] > 0
    assert (hurt["wrong"], hurt["spare"]) == (0, True)
    slowed = fleet.ask(LABKIT, "slow", stage=0, factor=2.0, settle_s=0.2, calm_s=0.1)
    assert slowed["moves"] >= 0
    assert slowed["boundaries"][-1] == 4


def test_ranks_of_torch_compute_what_the_model_does(fleet: Fleet, tmp_path: Path) -> None:
    common = {"model": MODEL, "boundaries": [0, 2, 4], "store": str(tmp_path / "store"), "threads": 1}
    joined = ask_all(
        fleet, "join", {one: {**common, "rank": rank, "microbatches": 4} for rank, one in enumerate(RANKS)}
    )
    assert joined[RANKS[0]]["size"] is None
    ran = ask_all(fleet, "run", {one: {"steps": 2} for one in RANKS})
    assert all(answer["wall_s"] > 0 for answer in ran.values())
    # Blocks that run by themselves get the input that they would get in the whole.
    last_two = BareStage()
    loaded = last_two.load(MODEL, first=2, last=4, threads=torch.get_num_threads())
    assert joined[RANKS[1]]["size"] == pytest.approx(loaded["size"], rel=1e-5)
    assert last_two.run(microbatches=3)["wall_s"] > 0


def test_a_real_model_is_planned_and_runs_in_its_stages(fleet: Fleet) -> None:
    model = {"name": "efficientnet-lite0", "rows": 1}
    plan = fleet.ask(LABKIT, "plan", model=model, stages=2, threads=1)
    first, cut, last = plan["boundaries"]
    whole = model_of(model)
    layers, batch = whole.layers(), whole.microbatch()
    assert (first, last) == (0, len(layers))
    with torch.inference_mode():
        value = torch.nn.Sequential(*layers[:cut])(batch)
        expected = torch.nn.Sequential(*layers[cut:])(value)
    assert plan["edge_bytes"] == value.nbytes
    opened = fleet.ask(LABKIT, "open", model=model, boundaries=plan["boundaries"])
    assert opened["size"] == pytest.approx(float(expected.abs().mean()), rel=1e-4)


def test_a_hop_brings_everything_back_and_leaves_nothing_behind(fleet: Fleet) -> None:
    hops = (RING, PIPE, PYZMQ, GLOO)
    for size_bytes in (4096, 1 << 16):
        answers = ask_all(fleet, "bounce", {hop: {"size_bytes": size_bytes, "times": 3} for hop in hops})
        assert all(answer["ms"] > 0 for answer in answers.values())
    groups = {fleet._workers[hop]._process.pid for hop in hops}
    leave(fleet, hops)
    assert not any(fleet.runs(hop) for hop in hops)
    assert gone(groups)
