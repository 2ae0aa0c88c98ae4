"""The door to all benchmarks: their names, an unknown one, and the whole of `batching` on pretended workers."""

import subprocess
import sys
from typing import Any

import pytest

from labkit import bench
from labkit.bench import batching
from labkit.bench.batching import FULL, QUICK
from labkit.bench.result import Part
from labkit.bench.system import LITSERVE, MOSEC
from labkit.errors import MeasureError, UnknownName


def test_both_benchmarks_are_there() -> None:
    assert bench.names() == ("batching", "sharding")


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="batching"):
        bench.run("baching")


def test_listing_the_names_loads_no_benchmark() -> None:
    code = (
        "import sys; from labkit import bench\n"
        "print(any(f'labkit.bench.{name}' in sys.modules for name in bench.names()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_full_run_has_every_peer_and_the_quick_one_says_what_it_leaves_out() -> None:
    assert {LITSERVE, MOSEC} == set(FULL.systems) - set(QUICK.systems)
    assert "LitServe and mosec" in QUICK.left_out
    # A B B A needs an even number of rounds.
    assert FULL.models.rounds % 2 == QUICK.models.rounds % 2 == 0


@pytest.fixture
def _no_cases(monkeypatch: pytest.MonkeyPatch, pretended: Any) -> None:
    monkeypatch.setattr(batching, "Fleet", lambda systems, say: pretended((), lambda *asked: {}))
    for case in ("synthetic", "highest_rate", "cost", "real_models"):
        monkeypatch.setattr(f"labkit.bench.{case}.run", lambda fleet, plan: Part(checks=CHECKS))


CHECKS: tuple[bench.BenchCheck, ...] = ()


@pytest.mark.usefixtures("_no_cases")
def test_goals_that_were_missed_are_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "CHECKS", (bench.BenchCheck.within("a goal", 2.0, high=1.0),))
    result = bench.run("batching", quick=True)
    assert [check.holds for check in result.checks] == [False] * 4
    assert result.notes == (QUICK.left_out,)
    assert {"cpu", "cores", "python", "torch"} <= dict(result.machine).keys()


@pytest.mark.usefixtures("_no_cases")
def test_nothing_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "CHECKS", (bench.BenchCheck.within("a goal", float("nan"), high=1.0),))
    with pytest.raises(MeasureError, match="none of 4 checks"):
        bench.run("batching", quick=True)
