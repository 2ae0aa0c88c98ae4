"""Case (d) on pretended workers: what the trials say, and what they are held to."""

import math
from typing import Any

import pytest

from labkit.bench import losses
from labkit.bench.losses import LossPlan
from labkit.bench.result import BenchCheck, Part
from labkit.bench.system import System

PLAN = LossPlan({"blocks": 12, "width": 8, "rows": 2}, kills=3, hangs=1, lead_s=0.1, quiet_s=1.0)
NOTICED_S = {"kill": (0.010, 0.030, 0.020), "hang": (0.510,)}


def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
    if do == "open":
        assert (fields["boundaries"], fields["spares"]) == ((0, 4, 8, 12), 1)
        return {}
    if do == "quiet":
        return {"gap_s": 0.012}
    noticed_s = NOTICED_S[fields["how"]][fields["stage"]]
    return {"noticed_s": noticed_s, "replaced_s": noticed_s + 0.02, "gap_s": 0.07, "asked": 50, "wrong": 0}


def checks(part: Part) -> dict[str, BenchCheck]:
    return {check.name: check for check in part.checks}


def test_the_median_and_the_worst_kill_are_held_to_the_goals(pretended: Any) -> None:
    found = checks(losses.run(pretended((), answer), PLAN))
    assert found["kill: noticed after, ms, median of 3"].value == pytest.approx(20.0)
    assert found["kill: noticed after, ms, median of 3"].holds
    assert found["kill: noticed after, ms, worst of 3"].value == pytest.approx(30.0)
    assert found["kill: noticed after, ms, worst of 3"].holds is False
    assert found["kill: replaced after, ms, worst of 3"].goal == "<= 60"
    assert found["kill: longest gap in results after, ms, worst of 3"].goal == "<= 75"


def test_each_stage_is_hurt_in_turn(pretended: Any) -> None:
    stages: list[tuple[str, int]] = []

    def remember(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if do == "fault":
            stages.append((fields["how"], fields["stage"]))
        return answer(system, do, fields)

    losses.run(pretended((), remember), PLAN)
    assert stages == [("kill", 0), ("kill", 1), ("kill", 2), ("hang", 0)]


def test_rows_show_the_best_and_the_worst_and_the_gap_without_a_fault(pretended: Any) -> None:
    part = losses.run(pretended((), answer), PLAN)
    found = {(row.case, row.metric): row for row in part.rows}
    quiet = found["no fault", "longest gap in results"]
    assert quiet.value == pytest.approx(12.0)
    noticed = found[losses.WORDS["kill"], "noticed, median"]
    assert (noticed.low, noticed.high) == (pytest.approx(10.0), pytest.approx(30.0))
    assert found[losses.WORDS["hang"], "noticed, median"].value == pytest.approx(510.0)


def test_a_loss_that_was_not_seen_is_not_measured(pretended: Any) -> None:
    def unseen(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        found = answer(system, do, fields)
        return {**found, "replaced_s": None} if do == "fault" and fields["stage"] == 1 else found

    found = checks(losses.run(pretended((), unseen), PLAN))
    assert found["kill: replaced after, ms, median of 3"].holds is None
    assert found["kill: noticed after, ms, median of 3"].holds


def test_a_wrong_answer_falls_short(pretended: Any) -> None:
    def wrong(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        found = answer(system, do, fields)
        return {**found, "wrong": 1} if do == "fault" and fields["how"] == "hang" else found

    part = losses.run(pretended((), wrong), PLAN)
    assert checks(part)["kill and hang: wrong or missing answers"].holds is False
    (row,) = [row for row in part.rows if row.case == "all faults"]
    assert row.value == 1
    assert "200 answers" in row.metric


def test_without_trials_nothing_is_claimed(pretended: Any) -> None:
    plan = LossPlan(PLAN.model, kills=0, hangs=0, lead_s=0.1, quiet_s=1.0)
    part = losses.run(pretended((), answer), plan)
    assert all(math.isnan(check.value) and check.holds is None for check in part.checks)
