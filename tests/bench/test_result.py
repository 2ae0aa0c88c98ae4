"""Rows, checks and results: what the JSON holds, exactly, and what a goal means."""

import json
import math
from pathlib import Path

import pytest

from labkit.bench import BenchCheck, BenchResult, BenchRow
from labkit.bench.result import Part
from labkit.errors import SettingError

ROW = BenchRow("200/s", "labkit", "p99", 57.2, 56.0, 58.5, "ms")


def result(*rows: BenchRow, checks: tuple[BenchCheck, ...] = ()) -> BenchResult:
    return BenchResult.of("demo", (("cpu", "a chip"), ("cores", "2")), [Part(rows, checks), Part(notes=("mind",))])


def test_the_json_has_exactly_the_agreed_keys(tmp_path: Path) -> None:
    checks = (BenchCheck.within("a ratio", 0.9, high=1.0),)
    result(ROW, checks=checks).write_json(tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text()) == {
        "machine": {"cpu": "a chip", "cores": "2"},
        "rows": [
            {
                "case": "200/s",
                "system": "labkit",
                "metric": "p99",
                "value": 57.2,
                "low": 56.0,
                "high": 58.5,
                "unit": "ms",
                "class": "measured",
            }
        ],
        "checks": [{"name": "a ratio", "value": 0.9, "goal": "<= 1", "holds": True}],
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_number_for_is_null(tmp_path: Path, value: float) -> None:
    result(BenchRow("c", "s", "m", value)).write_json(tmp_path / "rows.json")
    row = json.loads((tmp_path / "rows.json").read_text())["rows"][0]
    assert (row["value"], row["low"], row["high"]) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "low", "high", "goal", "holds"),
    [
        (0.95, 0.95, math.inf, ">= 0.95", True),
        (0.94, 0.95, math.inf, ">= 0.95", False),
        (0.5, -math.inf, 0.5, "<= 0.5", True),
        (0.51, -math.inf, 0.5, "<= 0.5", False),
        (1.11, 0.9, 1.1, "0.9..1.1", False),
        (math.inf, 1.0, math.inf, ">= 1", True),
        (math.nan, 1.0, math.inf, ">= 1", None),
    ],
)
def test_a_check_holds_its_value_to_the_goal(
    value: float, low: float, high: float, goal: str, holds: bool | None
) -> None:
    check = BenchCheck.within("name", value, low, high)
    assert (check.goal, check.holds) == (goal, holds)


def test_a_missing_row_says_why_and_has_no_value() -> None:
    row = BenchRow.missing("200/s", "a peer", "no network")
    assert (row.metric, row.to_json()["value"]) == ("not measured: no network", None)


def test_a_row_of_an_unknown_class_is_refused() -> None:
    with pytest.raises(SettingError, match="guessed"):
        BenchRow("c", "s", "m", 1.0, number_class="guessed")  # type: ignore[arg-type]


def test_parts_are_joined_in_order() -> None:
    first, second = BenchRow("a", "s", "m", 1.0), BenchRow("b", "s", "m", 2.0)
    joined = Part.joined([Part((first,), notes=("one",)), Part((second,), notes=("two",))])
    assert joined == Part((first, second), (), ("one", "two"))
