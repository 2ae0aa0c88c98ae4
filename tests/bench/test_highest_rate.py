"""Case (b) on pretended workers: a perfect batcher reaches the optimum, a slower one does not."""

import math
import time
from typing import Any

import pytest

from labkit.bench import highest_rate
from labkit.bench.highest_rate import CASE, RatePlan
from labkit.bench.result import BenchCheck, Part
from labkit.bench.sample import CURVE
from labkit.bench.system import BATCHED, BENTOML, LABKIT, System
from labkit.errors import MeasureError
from labkit.measure import simulate

PLAN = RatePlan(lowest_per_s=100.0, growth=2.0, tolerance=0.05, confirm=1, window_s=2.0, warmup_s=0.5)
SYSTEMS = (LABKIT, BENTOML, BATCHED)
SLOWER = {LABKIT: 1.0, BENTOML: 1.4, BATCHED: 10.0}


def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
    latencies = simulate(CURVE, fields["at_s"]).latencies_ms * SLOWER[system]
    return {"latencies_ms": latencies.tolist(), "lags_ms": [0.0] * latencies.size}


def values(part: Part) -> dict[str, float]:
    return {row.system: row.value for row in part.rows if row.number_class == "measured"}


def check(part: Part, words: str) -> BenchCheck:
    return next(check for check in part.checks if words in check.name)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highest_rate, "LONG_S", 3.0)
    monkeypatch.setattr(highest_rate, "SIMULATIONS", 2)


def test_a_perfect_batcher_holds_exactly_what_the_simulation_holds(pretended: Any) -> None:
    part = highest_rate.run(pretended(SYSTEMS, answer), PLAN)
    assert check(part, "greedy optimum").value == 1.0
    assert 400 < values(part)["labkit"] < 615


def test_slower_systems_hold_less_and_a_hopeless_one_nothing(pretended: Any) -> None:
    found = values(highest_rate.run(pretended(SYSTEMS, answer), PLAN))
    assert found["labkit"] > found[str(BENTOML)] > found[str(BATCHED)] == 0.0


def test_the_interval_is_the_last_rate_that_held_and_the_first_that_did_not(pretended: Any) -> None:
    part = highest_rate.run(pretended(SYSTEMS, answer), PLAN)
    row = next(row for row in part.rows if row.system == "labkit")
    assert row.low == row.value < row.high <= row.value * (1 + 2 * PLAN.tolerance)


def test_no_two_systems_are_measured_at_the_same_time(pretended: Any) -> None:
    running: list[System] = []
    together: list[int] = []

    def watched(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        running.append(system)
        time.sleep(0.001)
        together.append(len(running))
        running.remove(system)
        return answer(system, do, fields)

    highest_rate.run(pretended(SYSTEMS, watched), PLAN)
    assert set(together) == {1}


def test_a_failing_peer_leaves_its_check_unmeasured(pretended: Any) -> None:
    def failing(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if system == BENTOML:
            raise MeasureError("it crashed")
        return answer(system, do, fields)

    part = highest_rate.run(pretended(SYSTEMS, failing), PLAN)
    assert check(part, "best peer").holds is None
    assert check(part, "greedy optimum").holds
    assert ("not measured: it crashed", str(BENTOML)) in [(row.metric, row.system) for row in part.rows]


def test_labkit_above_a_peer_that_holds_nothing_is_above_it(pretended: Any) -> None:
    part = highest_rate.run(pretended((LABKIT, BATCHED), answer), PLAN)
    found = check(part, "best peer")
    assert found == BenchCheck(f"{CASE}, all answered: labkit, Goodput / best peer", math.inf, "> 1", True)
