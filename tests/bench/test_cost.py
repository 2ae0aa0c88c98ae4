"""Case (c) on pretended workers: costs per request and the cheapest peer."""

from typing import Any

import pytest

from labkit.bench import cost
from labkit.bench.cost import CostPlan
from labkit.bench.system import BATCHED, BENTOML, LABKIT, LITSERVE, System
from labkit.errors import MeasureError

PLAN = CostPlan(requests=10_000, in_flight=1_000, rounds=3)
SYSTEMS = (LABKIT, BENTOML, BATCHED, LITSERVE)
CPU_S = {(LABKIT, "burst"): 0.1, (LABKIT, "burst by await"): 0.3, (BENTOML, "burst"): 0.25, (BATCHED, "burst"): 0.5}


def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
    assert (fields["requests"], fields["in_flight"]) == (10_000, 1_000)
    return {"cpu_s": CPU_S[system, do], "wall_s": 2 * CPU_S[system, do]}


def test_costs_are_microseconds_per_request(pretended: Any) -> None:
    part = cost.run(pretended(SYSTEMS, answer), PLAN)
    found = {(row.system, row.metric): row.value for row in part.rows}
    assert found["labkit", "CPU time a request"] == pytest.approx(10.0)
    assert found["labkit, by await", "wall time a request"] == pytest.approx(60.0)
    assert {row.unit for row in part.rows} == {"µs"}


def test_each_way_to_call_labkit_is_held_to_half_of_the_cheapest_peer(pretended: Any) -> None:
    part = cost.run(pretended(SYSTEMS, answer), PLAN)
    found = {check.name: (round(check.value, 6), check.holds) for check in part.checks}
    assert found == {
        "no-op model: CPU time a request, labkit / best in-process peer": (0.4, True),
        "no-op model: wall time a request, labkit / best in-process peer": (0.4, True),
        "no-op model: CPU time a request, labkit, by await / best in-process peer": (1.2, False),
        "no-op model: wall time a request, labkit, by await / best in-process peer": (1.2, False),
    }


def test_servers_take_no_part(pretended: Any) -> None:
    fleet = pretended(SYSTEMS, answer)
    cost.run(fleet, PLAN)
    assert LITSERVE not in {system for system, _ in fleet.asked}


def test_a_failing_peer_leaves_the_checks_unmeasured(pretended: Any) -> None:
    def failing(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if system == BENTOML:
            raise MeasureError("it crashed")
        return answer(system, do, fields)

    part = cost.run(pretended(SYSTEMS, failing), PLAN)
    assert all(check.holds is None for check in part.checks)
    assert "not measured: it crashed" in [row.metric for row in part.rows]
