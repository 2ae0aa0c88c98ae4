from dataclasses import replace

import numpy as np
import pytest
import torch

from labkit.errors import SettingError, UnknownName
from labkit.labs import specimen as module
from labkit.labs.specimen import CUTS, Cut, Specimen, slowness
from labkit.sharding.plan import Plan
from labkit.sharding.problem import Problem


def _cut(stage_s: tuple[float, ...], threads: int, places: tuple[str, ...] = ("cpu", "cpu", "cpu")) -> Cut:
    stages = len(stage_s)
    plan = Plan(
        boundaries=tuple(range(stages + 1)),
        devices=tuple(range(stages)),
        replicas=(1,) * stages,
        stage_s=stage_s,
        link_s=(0.0,) * (stages - 1),
        bottleneck_s=max(stage_s),
        latency_s=sum(stage_s),
        memory_bytes=(0,) * stages,
    )
    problem = Problem(np.ones((stages, stages)), rows=4)
    return Cut(plan, problem, places[:stages], (1.0,) * stages, threads)


@pytest.mark.parametrize("by", CUTS)
def test_every_way_to_cut_gives_stages_that_hold_each_layer_once(layered: Specimen, by: str) -> None:
    cut = layered.cut(3, 2, by)
    assert cut.plan.boundaries[0] == 0
    assert cut.plan.boundaries[-1] == len(layered.chain)
    assert list(cut.plan.boundaries) == sorted(set(cut.plan.boundaries))
    assert sum(map(int, str(cut).split(" | "))) == 6


def test_the_layers_are_measured_once_so_that_cuts_can_be_compared(layered: Specimen) -> None:
    assert layered.profile(2, 4) is layered.profile(2, 4)
    first, second = layered.cut(2, 4), layered.cut(2, 4, "equal count")
    assert (first.problem.layer_s == second.problem.layer_s).all()


def test_what_others_used_is_that_of_the_busiest_measurement(layered: Specimen) -> None:
    assert layered.others_share == 0.0
    measured = [layered.profile(workers, 2).origin.others_share for workers in (1, 2)]
    assert layered.others_share == max(measured)


def test_a_slower_device_gets_fewer_layers_and_the_times_are_its_own(layered: Specimen) -> None:
    even, uneven = layered.cut(2, 4), layered.cut(2, 4, slowdowns=(1.0, 8.0))
    assert np.allclose(uneven.problem.layer_s[1], 8 * even.problem.layer_s[0])
    assert uneven.slowdowns_of_stages() in ((1.0, 8.0), (1.0,))


def test_stages_beyond_the_cores_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 2)
    assert _cut((0.010, 0.010), threads=1).period_s == pytest.approx(0.010)
    assert _cut((0.010, 0.010, 0.010), threads=1).period_s == pytest.approx(0.015)
    assert _cut((0.010,), threads=2).period_s == pytest.approx(0.010)
    assert _cut((0.010, 0.010, 0.010), threads=1).rows_per_s == pytest.approx(4 / 0.015)


def test_stages_on_one_accelerator_take_turns_and_on_two_do_not() -> None:
    assert _cut((0.010, 0.020), 1, ("cuda:0", "cuda:0")).period_s == pytest.approx(0.030)
    assert _cut((0.010, 0.020), 1, ("cuda:0", "cuda:1")).period_s == pytest.approx(0.020)


def test_a_pipeline_of_it_answers_what_the_model_answers(layered: Specimen) -> None:
    rows = layered.rows(4)
    with layered.pipeline(layered.cut(3, 2)) as pipeline:
        assert torch.allclose(pipeline.submit(rows).result(10), layered.subject.model.module(rows), atol=1e-6)


def test_measuring_leaves_torch_with_the_threads_that_it_had(layered: Specimen) -> None:
    before = torch.get_num_threads()
    replace(layered, fresh=True).profile(4, 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("text", ["", "1 fast", "1 0.5"])
def test_speeds_that_are_no_factors_from_one_up_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="Say how many times slower"):
        slowness(text)


def test_more_stages_than_layers_and_unknown_cuts_are_refused(layered: Specimen) -> None:
    with pytest.raises(SettingError, match="stages is 7; layered has 6 layers"):
        layered.cut(7, 2)
    with pytest.raises(UnknownName, match="Did you mean 'equal count'"):
        layered.cut(2, 2, "equal counts")
