"""Samples: what counts, what is infinite, what is void, and how the simulation is compared."""

import math
from typing import Any

import numpy as np
import pytest

from labkit.bench.sample import TRIES, Sample, Window, measured, simulated
from labkit.bench.system import LABKIT, System
from labkit.bench.way import Way
from labkit.errors import RunVoid
from labkit.measure import inoue_bound
from labkit.measure.curve import LinearCurve

OPEN = Way("labkit", LABKIT, "open")
WINDOW = Window(rate_per_s=100.0, duration_s=5.0, warmup_s=2.0, seed=1)


def answering(latency_ms: float | None, lag_ms: float = 0.1) -> Any:
    def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        count = len(fields["at_s"])
        return {"latencies_ms": [latency_ms] * count, "lags_ms": [lag_ms] * count, "batch_rows": [1, 3]}

    return answer


def test_requests_of_the_warm_up_do_not_count() -> None:
    counted = WINDOW.counted(WINDOW.arrivals_s())
    assert counted.min() >= 2.0
    assert counted.size < WINDOW.arrivals_s().size


def test_a_low_rate_is_measured_until_a_p99_can_be_told() -> None:
    window = Window.enough(20.0, 5.0, 1.0, seed=0)
    assert window.counted(window.arrivals_s()).size >= 662


def test_a_request_without_an_answer_is_infinitely_late(pretended: Any) -> None:
    def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        count = len(fields["at_s"])
        return {"latencies_ms": [None, *[30.0] * (count - 2), None], "lags_ms": [0.0] * count}

    sample = measured(pretended((LABKIT,), answer), OPEN, WINDOW)
    assert sample.percentile_ms(50) == 30.0
    assert sample.percentile_ms(100) == math.inf


def test_a_worker_is_given_the_arrivals_of_the_window(pretended: Any) -> None:
    given = []

    def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        given.append(fields["at_s"])
        return answering(30.0)(system, do, fields)

    sample = measured(pretended((LABKIT,), answer), OPEN, WINDOW)
    assert given == [WINDOW.arrivals_s().tolist()]
    assert sample.mean_batch == 2.0


def test_a_late_generator_voids_the_run_after_some_tries(pretended: Any) -> None:
    fleet = pretended((LABKIT,), answering(30.0, lag_ms=6.0))
    with pytest.raises(RunVoid, match="late"):
        measured(fleet, OPEN, WINDOW)
    assert len(fleet.asked) == TRIES


def test_a_run_that_was_late_once_is_repeated(pretended: Any) -> None:
    lags = iter((6.0, 0.1))
    fleet = pretended((LABKIT,), lambda *asked: answering(30.0, next(lags))(*asked))
    assert measured(fleet, OPEN, WINDOW).void == ""


def test_meeting_an_slo_takes_proof() -> None:
    # Of 662 requests, one late is proof of p99 at 99 % confidence and two are not (the table of early stopping).
    on_time = np.full(662, 50.0)
    late_once, late_twice = on_time.copy(), on_time.copy()
    late_once[:1], late_twice[:2] = 150.0, 150.0
    assert Sample(late_once).meets(100.0)
    assert not Sample(late_twice).meets(100.0)


def test_the_simulation_keeps_to_the_theory_of_a_greedy_batcher() -> None:
    sample = simulated(Window(200.0, 300.0, 5.0, seed=3))
    assert sample.latencies_ms.mean() == pytest.approx(inoue_bound(200.0, LinearCurve(20.0, 1.0)), rel=0.03)
    assert sample.mean_batch == pytest.approx(5.0, rel=0.05)
