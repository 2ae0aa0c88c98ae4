"""Case (b) on pretended workers: one hop through every carrier."""

import math
from typing import Any

import pytest

from labkit.bench import hops
from labkit.bench.hops import ENGINE, GLOO, PEERS, PIPE, RAY, RING, SYSTEMS, HopPlan
from labkit.bench.system import System
from labkit.errors import MeasureError

PLAN = HopPlan(sizes_bytes=(1 << 20, 4 << 20), rounds=2, times=3)
MS = dict(zip(SYSTEMS, (0.2, 0.5, 0.8, 0.4, 1.0, 4.0), strict=True))


def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
    assert (do, fields["times"]) == ("bounce", 3)
    return {"ms": MS[system] * fields["size_bytes"] / (1 << 20)}


def test_the_ring_is_held_to_the_fastest_peer_at_every_size(pretended: Any) -> None:
    part = hops.run(pretended((), answer), PLAN)
    assert [check.name.split(":")[0] for check in part.checks] == ["one hop of 1 MiB", "one hop of 4 MiB"]
    assert [check.value for check in part.checks] == pytest.approx([0.5, 0.5])
    assert all(check.holds for check in part.checks)


def test_every_carrier_has_a_row_for_every_size(pretended: Any) -> None:
    part = hops.run(pretended((), answer), PLAN)
    found = {(row.case, row.system): row.value for row in part.rows if row.unit == "ms"}
    assert found == {
        (f"one hop of {mib} MiB", str(system)): pytest.approx(MS[system] * mib) for mib in (1, 4) for system in SYSTEMS
    }


def test_a_missing_peer_is_a_row_that_says_so(pretended: Any) -> None:
    def without_ray(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if system == RAY:
            raise MeasureError("No module named 'ray'")
        return answer(system, do, fields)

    fleet = pretended((), without_ray)
    part = hops.run(fleet, PLAN)
    missing = [row for row in part.rows if math.isnan(row.value)]
    assert {(row.system, row.metric) for row in missing} == {(str(RAY), "not measured: No module named 'ray'")}
    assert all(check.holds is None for check in part.checks)
    assert [system for system, _ in fleet.asked].count(RAY) == 1
    assert [system for system, _ in fleet.asked].count(GLOO) == 4


def test_a_slower_ring_falls_short(pretended: Any) -> None:
    def slow(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"ms": 2.0 if system == RING else 1.0}

    part = hops.run(pretended((), slow), PLAN)
    assert [(check.value, check.holds) for check in part.checks] == [(pytest.approx(2.0), False)] * 2


def test_the_engine_takes_part_but_is_no_peer() -> None:
    assert ENGINE not in PEERS
    assert PIPE in PEERS
