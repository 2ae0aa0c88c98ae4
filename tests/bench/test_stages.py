"""Case (a) on pretended workers: rates, the bound, ratios, and systems that fail or disagree."""

from dataclasses import replace
from typing import Any

import pytest

from labkit.bench import stages
from labkit.bench.result import BenchCheck, Part
from labkit.bench.stages import BOUND, LABKIT, TORCH, TORCH_KEPT, UNSHARDED, StagePlan
from labkit.bench.system import System
from labkit.errors import MeasureError
from labkit.measure.provenance import usable_cores

MODEL = {"blocks": 12, "width": 256, "rows": 100}
REAL = {"name": "a-model", "rows": 8}
PLAN = StagePlan((MODEL,), counts=(2,), rounds=2, window_s=1.0, warmup_s=0.1, step_microbatches=10)
# Seconds of a microbatch: a stage by itself, and through torch's pipeline; labkit answers with its rate.
ALONE_S = {"bound, stage 0": 0.010, "bound, stage 1": 0.0125}
TORCH_S = 0.02
ONE_S = 0.025
LABKIT_PER_S = 76.0


def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
    if do in ("open", "load", "join"):
        return {"size": 0.5}
    if do == "bounce":
        assert fields["size_bytes"] == 4 * 256 * 100
        return {"ms": 1.0}
    if system == LABKIT:
        return {"per_s": LABKIT_PER_S}
    if system.worker == "torch_rank":
        return {"wall_s": fields["steps"] * PLAN.step_microbatches * TORCH_S}
    return {"wall_s": fields["microbatches"] * ALONE_S.get(system.name, ONE_S)}


def check(part: Part, words: str) -> BenchCheck:
    return next(check for check in part.checks if words in check.name)


def test_the_slowest_stage_sets_the_bound(pretended: Any) -> None:
    part = stages.run(pretended((), answer), PLAN)
    (bound,) = [row for row in part.rows if row.number_class == "bound"]
    assert bound.value == pytest.approx(1 / 0.0125)
    assert check(part, "bound").value == pytest.approx(76.0 / 80.0)
    assert check(part, "bound").holds


def test_a_link_that_is_slower_than_every_stage_sets_the_bound(pretended: Any) -> None:
    def slow_link(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"ms": 20.0} if do == "bounce" else answer(system, do, fields)

    part = stages.run(pretended((), slow_link), PLAN)
    (bound,) = [row for row in part.rows if row.number_class == "bound"]
    assert bound.value == pytest.approx(50.0)


def test_labkit_is_held_to_1_2_times_torch(pretended: Any) -> None:
    part = stages.run(pretended((), answer), PLAN)
    found = check(part, TORCH.name)
    assert found.value == pytest.approx(76.0 / 50.0)
    assert (found.goal, found.holds) == (">= 1.2", True)


def test_a_real_model_is_cut_as_labkit_plans_by_everybody(pretended: Any) -> None:
    told: dict[str, tuple[int, ...]] = {}

    def planned(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if do == "plan":
            assert (fields["model"], fields["stages"]) == (REAL, 2)
            return {"boundaries": [0, 3, 10], "edge_bytes": 12345}
        if do == "bounce":
            assert fields["size_bytes"] == 12345
            return {"ms": 1.0}
        if do in ("open", "join"):
            told[system.name] = tuple(fields["boundaries"])
        if do == "load":
            told[system.name] = (fields["first"], fields["last"])
        return answer(system, do, fields)

    part = stages.run(pretended((), planned), replace(PLAN, models=(REAL,)))
    assert check(part, "a-model").name.startswith("2 stages, a-model")
    assert told.pop("bound, stage 0") == (0, 3)
    assert told.pop("bound, stage 1") == (3, 10)
    assert told.pop(UNSHARDED.name) == (0, 10)
    assert set(told.values()) == {(0, 3, 10)}


def test_a_real_model_that_cannot_be_had_is_left_out_and_named(pretended: Any) -> None:
    def absent(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if do == "plan":
            raise MeasureError("it is not in the cache")
        return answer(system, do, fields)

    part = stages.run(pretended((), absent), replace(PLAN, models=(REAL, MODEL)))
    assert "not measured: it is not in the cache" in [row.metric for row in part.rows]
    assert check(part, "a-model").holds is None
    assert check(part, "256 wide").holds is not None


def test_the_model_in_one_piece_stands_beside_it(pretended: Any) -> None:
    part = stages.run(pretended((), answer), PLAN)
    (ratio,) = [row for row in part.rows if row.metric == f"labkit / {UNSHARDED}"]
    assert ratio.value == pytest.approx(76.0 / 40.0)


def test_all_are_cut_alike_and_have_as_many_threads(pretended: Any) -> None:
    told: dict[str, dict[str, Any]] = {}

    def remember(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if do in ("open", "load", "join"):
            told[system.name] = fields
        return answer(system, do, fields)

    stages.run(pretended((), remember), PLAN)
    threads = max(1, usable_cores() // 2)
    assert told["labkit"]["boundaries"] == (0, 6, 12)
    ranks = [told[f"{TORCH.name}, stage {stage}"] for stage in (0, 1)]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert all((rank["boundaries"], rank["threads"]) == ((0, 6, 12), threads) for rank in ranks)
    assert [told[f"{one.name}, stage 0"]["keep_memory"] for one in (TORCH, TORCH_KEPT)] == [False, True]
    bare = [told[f"bound, stage {stage}"] for stage in (0, 1)]
    assert [(one["first"], one["last"], one["threads"]) for one in bare] == [(0, 6, threads), (6, 12, threads)]
    assert told[UNSHARDED.name]["threads"] == min(usable_cores(), 2 * threads)


def test_the_order_turns_round(pretended: Any) -> None:
    fleet = pretended((), answer)
    stages.run(fleet, PLAN)
    order = [system.name for system, do in fleet.asked if do == "run"][2:]  # two times the model in one piece
    firsts = [name for name in order if not name.endswith("stage 1")]
    torch_0, kept_0, bound_0 = (f"{system.name}, stage 0" for system in (TORCH, TORCH_KEPT, BOUND))
    forward = ["labkit", torch_0, kept_0, UNSHARDED.name, bound_0]
    assert firsts == [*forward, *forward[::-1]]


def test_torch_that_fails_is_left_out_and_named(pretended: Any) -> None:
    def broken(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if system.worker == "torch_rank":
            raise MeasureError("gloo found no interface")
        return answer(system, do, fields)

    part = stages.run(pretended((), broken), PLAN)
    assert "not measured: gloo found no interface" in [row.metric for row in part.rows]
    assert check(part, TORCH.name).holds is None
    assert check(part, "bound").holds


def test_systems_that_compute_something_else_are_not_compared(pretended: Any) -> None:
    def differs(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"size": 0.6} if do == "open" else answer(system, do, fields)

    with pytest.raises(MeasureError, match=r"labkit answers with a mean size of 0\.6"):
        stages.run(pretended((), differs), PLAN)


def test_without_labkit_there_is_nothing_to_measure(pretended: Any) -> None:
    def dies(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if system == LABKIT and do == "run":
            raise MeasureError("the worker died")
        return answer(system, do, fields)

    with pytest.raises(MeasureError, match="the worker died"):
        stages.run(pretended((), dies), PLAN)


def test_the_notes_say_how_the_bound_was_measured(pretended: Any) -> None:
    notes = " ".join(stages.run(pretended((), answer), PLAN).notes)
    assert "1 / max(stage, link)" in notes
    assert "all begin together" in notes
