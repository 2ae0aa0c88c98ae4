"""The whole of `sharding` on pretended workers."""

import json
import sys
from pathlib import Path

import pytest

from labkit import bench
from labkit.bench import sharding
from labkit.bench.result import BenchCheck, Part
from labkit.bench.sharding import FEW_BLOCKS, FULL, LARGE_BLOCKS, QUICK
from labkit.errors import MeasureError

CHECKS: tuple[BenchCheck, ...] = ()


@pytest.fixture
def _no_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in ("stages", "hops", "cuts", "losses", "slowdown"):
        monkeypatch.setattr(f"labkit.bench.{case}.run", lambda fleet, plan: Part(checks=CHECKS))


@pytest.mark.usefixtures("_no_cases")
def test_goals_that_were_missed_are_a_result_with_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[__name__], "CHECKS", (BenchCheck.within("a goal", 0.5, low=1.0),))
    result = bench.run("sharding", quick=True)
    assert [check.holds for check in result.checks] == [False] * 5
    assert result.notes == (QUICK.left_out,)
    result.write_json(tmp_path / "rows.json")
    written = json.loads((tmp_path / "rows.json").read_text())
    assert {"cpu", "cores", "python", "torch"} <= written["machine"].keys()
    assert len(written["checks"]) == 5


@pytest.mark.usefixtures("_no_cases")
def test_nothing_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "CHECKS", (BenchCheck.within("a goal", float("nan"), low=1.0),))
    with pytest.raises(MeasureError, match="none of 5 checks"):
        sharding.run(quick=True)


def test_the_quick_run_has_every_case_and_size_and_is_shorter() -> None:
    assert QUICK.stages.counts == FULL.stages.counts == (2, 3)
    assert QUICK.hops.sizes_bytes == FULL.hops.sizes_bytes == (1 << 20, 2 << 20, 4 << 20)
    assert (QUICK.cuts.layers, QUICK.cuts.devices) == (FULL.cuts.layers, FULL.cuts.devices) == (1000, 72)
    assert 1 <= QUICK.losses.kills < FULL.losses.kills
    assert QUICK.stages.rounds * QUICK.stages.window_s < FULL.stages.rounds * FULL.stages.window_s
    assert "every case" in QUICK.left_out


def test_the_same_models_are_cut_everywhere_blocks_of_one_do_eight_times_the_work_of_the_other_s() -> None:
    assert QUICK.stages.models == FULL.stages.models
    work = [model["rows"] * model["width"] ** 2 for model in (FEW_BLOCKS, LARGE_BLOCKS)]
    assert work[1] == 8 * work[0]
