"""Case (e) on pretended workers: the recovered throughput and what it is compared with."""

import math
from typing import Any

import pytest

from labkit.bench import slowdown
from labkit.bench.slowdown import MOVED, OPTIMUM, UNMOVED, SlowPlan
from labkit.bench.system import System

PLAN = SlowPlan({"blocks": 12, "width": 8, "rows": 2}, rounds=2, window_s=1.0, warmup_s=0.1, settle_s=5.0, calm_s=1.0)
PER_S = {MOVED: 97.0, OPTIMUM: 100.0, UNMOVED: 50.0}


def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
    if do == "slow":
        assert (fields["stage"], fields["factor"]) == (0, 2.0)
        return {"moved_s": 1.5, "moves": 1, "boundaries": [0, 4, 12]}
    return {"per_s": PER_S[system]} if do == "run" else {}


def test_the_recovered_throughput_is_a_share_of_the_new_optimum(pretended: Any) -> None:
    (check,) = slowdown.run(pretended((), answer), PLAN).checks
    assert check.value == pytest.approx(0.97)
    assert (check.goal, check.holds) == (">= 0.95", True)


def test_the_optimum_is_cut_for_the_slow_stage_from_the_start(pretended: Any) -> None:
    opened: dict[System, dict[str, Any]] = {}

    def remember(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if do == "open":
            opened[system] = fields
        return answer(system, do, fields)

    slowdown.run(pretended((), remember), PLAN)
    # Twice four blocks take as long as eight.
    assert (opened[OPTIMUM]["boundaries"], opened[OPTIMUM]["slowdowns"]) == ((0, 4, 12), [2.0, 1.0])
    assert (opened[MOVED]["boundaries"], opened[MOVED]["balanced"]) == ((0, 6, 12), True)
    assert opened[UNMOVED]["boundaries"] == (0, 6, 12)
    assert not any(fields.get("balanced") for system, fields in opened.items() if system != MOVED)


def test_what_moved_and_when_is_shown(pretended: Any) -> None:
    part = slowdown.run(pretended((), answer), PLAN)
    found = {row.metric: row.value for row in part.rows if row.system == MOVED.name}
    assert (found["until the first move"], found["moves"]) == (1.5, 1)
    assert found["against fixed boundaries"] == pytest.approx(97 / 50)
    assert "[0, 4, 12]" in part.notes[0]


def test_boundaries_that_never_moved_are_said_to(pretended: Any) -> None:
    def still(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if do == "slow":
            return {"moved_s": None, "moves": 0, "boundaries": [0, 6, 12]}
        return {"per_s": 50.0 if system != OPTIMUM else 100.0} if do == "run" else {}

    part = slowdown.run(pretended((), still), PLAN)
    found = {row.metric: row.value for row in part.rows if row.system == MOVED.name}
    assert math.isnan(found["until the first move"])
    assert part.checks[0].holds is False
