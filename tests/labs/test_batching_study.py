import math
from dataclasses import replace
from threading import Event

import pytest

from labkit.errors import MeasureError, SettingError
from labkit.labs import batching_study, batching_words
from labkit.labs.batching_study import CONTROL, Cell, Study, StudySettings, study
from labkit.labs.policies import NO_BATCHING
from labkit.labs.subject import Subject
from labkit.measure import MeasuredCurve, Metrics, Store, percentile, summarise
from labkit.records import RequestRecord


def _metrics(latency_ms: float, slo_ms: float, count: int = 100) -> Metrics:
    rows = [
        RequestRecord(n, n * 0.1, n * 0.1, n * 0.1, n * 0.1, n * 0.1 + latency_ms / 1000, "ok") for n in range(count)
    ]
    return summarise(rows, window_s=10.0, slo_ms=slo_ms)


def _cell(policy: str, rate: float, latency_ms: float, slo_ms: float = 100.0) -> Cell:
    latencies = [latency_ms] * 100
    return Cell(policy, rate, (_metrics(latency_ms, slo_ms),), percentile(latencies), percentile(latencies, 50.0))


def _study(*cells: Cell) -> Study:
    names = tuple(dict.fromkeys(cell.policy for cell in cells))
    settings = StudySettings(policies=names)
    return Study(settings, "a test's CPU", MeasuredCurve((1, 16), (21.0, 36.0)), 444.0, 400.0, cells)


def test_the_policy_that_holds_the_highest_rate_is_the_best() -> None:
    result = _study(
        _cell(NO_BATCHING, 20.0, 50.0),
        _cell(NO_BATCHING, 80.0, 500.0),
        _cell("greedy", 20.0, 60.0),
        _cell("greedy", 80.0, 90.0),
    )
    assert result.best == "greedy"
    assert result.held_per_s("greedy") == 80.0
    assert "answers 80 requests/s" in result.verdict()
    assert "without batching it answers 20" in result.verdict()


def test_of_equal_policies_the_one_with_the_smaller_median_wins() -> None:
    result = _study(_cell("max wait", 80.0, 90.0), _cell("greedy", 80.0, 70.0))
    assert result.best == "greedy"


def test_a_goal_that_nobody_holds_is_said_plainly() -> None:
    assert "does not reach" in _study(_cell("greedy", 20.0, 500.0)).verdict()


def test_where_batching_adds_nothing_the_verdict_says_so() -> None:
    result = _study(_cell(NO_BATCHING, 20.0, 50.0), _cell("greedy", 20.0, 60.0))
    assert result.verdict().endswith("batching adds nothing.")


def test_a_void_run_never_holds() -> None:
    good = _cell("greedy", 20.0, 50.0)
    void = replace(good, runs=(replace(good.runs[0], void="the generator was late"),))
    assert good.holds
    assert not void.holds
    assert "void" in batching_words.policy_rows(_study(void))[0]


def test_the_control_compares_greedy_with_itself() -> None:
    result = _study(_cell("greedy", 20.0, 50.0), _cell(CONTROL, 20.0, 55.0))
    assert result.control_ratio() == pytest.approx(1.1)
    assert math.isnan(_study(_cell("greedy", 20.0, 50.0)).control_ratio())
    assert CONTROL not in {point.series for point in batching_words.points(result)}


def test_a_whole_study_drives_every_policy_at_every_rate(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching_study, "subject", lambda model, device: tiny)
    monkeypatch.setattr(batching_study, "_closed", lambda *arguments: 200.0)
    settings = StudySettings(seconds=10.0, cap=4, policies=(NO_BATCHING, "greedy"))
    said: list[str] = []
    result = study(settings, say=said.append)
    assert [(cell.policy, round(cell.rate_per_s)) for cell in result.cells] == [
        (name, rate) for rate in (80, 130, 180) for name in (NO_BATCHING, "greedy")
    ]
    assert all(sum(run.offered for run in cell.runs) > 50 for cell in result.cells)
    assert all(cell.mean_batch == 1 for cell in result.cells if cell.policy == NO_BATCHING)
    assert len(batching_words.policy_rows(result)) == 6
    assert batching_words.key_rows(result)
    assert batching_words.doubts(result)


def test_a_stopped_study_raises_instead_of_reporting_half(tiny: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching_study, "subject", lambda model, device: tiny)
    stop = Event()
    stop.set()
    with pytest.raises(MeasureError, match="half-way"):
        study(StudySettings(seconds=10.0), stop)


def test_too_short_a_study_is_refused_with_its_limit() -> None:
    with pytest.raises(SettingError, match="seconds is 5"):
        StudySettings(seconds=5)


def test_every_cell_goes_into_the_results_store_with_its_settings(tmp_path) -> None:
    store = Store(tmp_path / "results.sqlite")
    store.add(*batching_words.result_rows(_study(_cell("greedy", 20.0, 50.0), _cell("max wait", 80.0, 90.0))))
    rows = store.rows(metric="attainment")
    assert [(row.system, row.value, row.settings["rate_per_s"]) for row in rows] == [
        ("greedy", 1.0, 20.0),
        ("max wait", 1.0, 80.0),
    ]
    assert {row.value for row in store.rows(system="greedy", metric="p90")} <= {50.0}
