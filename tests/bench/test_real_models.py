"""Case (d) on a pretended worker: shares, the bound, and a model that cannot be had."""

import math
from typing import Any

import pytest

from labkit.bench import real_models
from labkit.bench.real_models import ModelPlan
from labkit.bench.system import LABKIT, System
from labkit.errors import MeasureError

PLAN = ModelPlan((("tiny", 8),), rounds=2, saturate_s=1.0, latency_rounds=2, latency_s=1.0, warmup_s=0.1)


def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
    batched = fields.get("max_rows") == 8
    if do == "prepare":
        return {"prepare_ms": 2.0}
    if do == "saturate":
        return {"per_s": 96.0 if batched else 40.0, "mean_batch": 7.5 if batched else 1.0}
    if do == "bare":
        return {"per_s": 100.0 if batched else 50.0}
    if do == "beside":
        return {"per_s": 98.0 if batched else 45.0}
    if do == "latency":
        return {"latencies_ms": [10.0] * 500, "void": ""}
    return {}


def numbers(part: Any) -> dict[tuple[str, str], float]:
    return {(row.system, row.metric): row.value for row in part.rows}


def test_throughput_is_a_share_of_the_bare_model_at_the_same_batches(pretended: Any) -> None:
    part = real_models.run(pretended((LABKIT,), answer), PLAN)
    found = numbers(part)
    assert found["labkit, batching", "share of the bare model"] == pytest.approx(0.96)
    assert found["labkit, one by one", "share of the bare model"] == pytest.approx(0.8)
    assert found["labkit", "batching / one by one"] == pytest.approx(2.4)
    (check,) = part.checks
    assert (check.value, check.holds) == (pytest.approx(0.96), True)


def test_what_preprocessing_takes_from_the_bare_model_is_told_apart(pretended: Any) -> None:
    found = numbers(real_models.run(pretended((LABKIT,), answer), PLAN))
    assert found["labkit, batching", "bare model beside preprocessing, its own share"] == pytest.approx(0.98)
    assert found["labkit, one by one", "bare model beside preprocessing, its own share"] == pytest.approx(0.9)


def test_labkit_and_the_bare_model_go_there_and_back(pretended: Any) -> None:
    fleet = pretended((LABKIT,), answer)
    real_models.run(fleet, PLAN)
    speeds = [do for _, do in fleet.asked if do in ("saturate", "bare", "beside")]
    assert speeds == ["saturate", "bare", "beside"] * 2 + ["beside", "bare", "saturate"] * 2


def test_preprocessing_has_its_share_and_its_bound(pretended: Any) -> None:
    found = numbers(real_models.run(pretended((LABKIT,), answer), PLAN))
    # 2 ms of preprocessing and 10 ms of the model per row: one thread could prepare 500/s, the model runs 100/s.
    assert found["preprocessing", "share of the work"] == pytest.approx(2 / 12)
    assert found["bound", "preprocessing or bare model"] == pytest.approx(100.0)


def test_latencies_of_all_rounds_are_one_sample(pretended: Any) -> None:
    found = numbers(real_models.run(pretended((LABKIT,), answer), PLAN))
    # 80 % of 40/s; one round has too few requests for a p99, both together have enough.
    assert found["labkit, batching", "p99 at 32/s"] == 10.0


def test_a_void_latency_run_leaves_only_the_latencies_out(pretended: Any) -> None:
    def late(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"latencies_ms": [10.0], "void": "too late"} if do == "latency" else answer(system, do, fields)

    part = real_models.run(pretended((LABKIT,), late), PLAN)
    assert [row.metric for row in part.rows if math.isnan(row.value)] == [
        "not measured: a real model at 32/s: too late"
    ] * 2
    assert part.checks[0].holds


def test_a_model_that_cannot_be_loaded_is_reported(pretended: Any) -> None:
    def offline(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        raise MeasureError("no source has it")

    part = real_models.run(pretended((LABKIT,), offline), PLAN)
    assert [row.metric for row in part.rows] == ["not measured: no source has it"]
    assert [check.holds for check in part.checks] == [None]
