import pytest

from labkit.labs.standstill import longest_gap_ms, standstill
from labkit.records import StepOutcome, StepRecord


def _step(stage: int, begun_s: float, ended_s: float, outcome: StepOutcome = "ok") -> StepRecord:
    return StepRecord(0, f"stage{stage}", 0, "cpu", begun_s, ended_s, rows=1, cap=1, outcome=outcome)


def test_the_longest_gap_is_between_results_of_the_last_stage_alone() -> None:
    steps = [
        _step(0, 0.0, 5.0),
        _step(1, 1.0, 1.1),
        _step(1, 1.2, 1.3),
        _step(1, 1.6, 1.8),
        _step(1, 1.9, 3.9, "failed"),
    ]
    assert longest_gap_ms(steps, 1) == pytest.approx(500)
    assert longest_gap_ms(steps, 1, since_s=2.0) == 0
    assert longest_gap_ms([], 1) == 0


def test_a_step_that_had_begun_before_the_fault_does_not_count_as_back() -> None:
    steps = [_step(0, 0.9, 1.05), _step(0, 1.2, 1.3), _step(1, 1.3, 1.4), _step(1, 2.0, 2.1)]
    found = standstill(steps, stage=0, last_stage=1, at_s=1.0)
    assert found is not None
    assert found.back_ms == pytest.approx(200)


def test_nothing_is_said_before_the_stage_is_back_and_its_effects_are_over() -> None:
    assert standstill([_step(0, 0.1, 0.2)], 0, 1, at_s=1.0) is None
    assert standstill([_step(0, 1.1, 1.2), _step(1, 1.2, 1.3)], 0, 1, at_s=1.0) is None
    assert standstill([], 0, 1, at_s=1.0) is None


def test_a_gap_long_after_the_fault_is_not_blamed_on_it() -> None:
    results = [_step(1, at_s, at_s + 0.01) for at_s in (0.9, 1.3, 1.5, 1.7, 1.9, 2.1, 9.0)]
    found = standstill([_step(0, 1.1, 1.2), *results], 0, 1, at_s=1.0)
    assert found is not None
    assert found.gap_ms == pytest.approx(400)
