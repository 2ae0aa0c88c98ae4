"""The load generators against a tiny engine whose every request can be accounted for."""

import time
from threading import Event

import numpy as np
import pytest

from labkit.errors import EngineClosed, RunVoid, SettingError
from labkit.measure import drive_closed, drive_open, repeat, summarise
from labkit.measure.run import Run, late
from labkit.workloads import Constant, Poisson, Replay


def test_requests_are_intended_exactly_at_the_arrival_times(tiny, numbers):
    run = drive_open(tiny(), Poisson(300), numbers, duration_s=0.5, seed=3, warmup_s=0)
    wanted_s = Poisson(300).times(0.5, seed=3)
    intended_s = np.sort([row.intended_s for row in run.requests]) - run.start_s
    assert run.offered == wanted_s.size
    np.testing.assert_allclose(intended_s, wanted_s, atol=1e-9)
    assert all(row.arrived_s >= row.intended_s for row in run.requests)


def test_a_thousand_requests_a_second_are_all_sent(tiny, numbers):
    run = drive_open(tiny(), Constant(1_000), numbers, duration_s=1.0, warmup_s=0)
    assert (run.offered, len(run.requests), run.lost) == (1_000, 1_000, 0)
    assert run.lag_p99_ms >= 0


def test_the_same_seed_draws_the_same_payloads_and_another_seed_others(tiny, numbers):
    servers = [tiny(), tiny(), tiny()]
    for server, seed in zip(servers, (1, 1, 2), strict=True):
        drive_open(server, Constant(200), numbers, duration_s=0.1, seed=seed, warmup_s=0)
    assert servers[0].payloads == servers[1].payloads != servers[2].payloads
    assert len(set(servers[0].payloads)) > 10


def test_warm_up_requests_are_sent_but_not_counted(tiny, numbers):
    server = tiny()
    run = drive_open(server, Constant(100), numbers, duration_s=0.3, warmup_s=0.2)
    assert len(server.records.requests()) == 50
    assert run.offered == len(run.requests) == 30
    assert min(row.intended_s for row in run.requests) == run.start_s
    assert all(run.start_s <= step.started_s < run.start_s + run.window_s for step in run.steps)


def test_a_warm_up_request_that_is_answered_in_the_window_is_carried(tiny, numbers):
    # Sent 50 ms before the window, answered 150 ms later at the earliest; only the window's end is far away.
    run = drive_open(tiny(base_ms=150), Replay((0.05, 0.9)), numbers, duration_s=1.0, warmup_s=0.1)
    assert (run.offered, run.carried) == (2, 1)


def test_answers_that_come_after_the_window_are_waited_for(tiny, numbers):
    run = drive_open(tiny(base_ms=300, cap=1), Replay((0.0, 0.001)), numbers, duration_s=0.05, warmup_s=0)
    assert [row.outcome for row in run.requests] == ["ok", "ok"]
    assert run.drained_s > 0.4
    # Neither of them was answered inside the window, so nothing was achieved in it.
    assert summarise(run).achieved_per_s == 0


def test_latency_counts_from_the_intended_time_so_that_a_stall_cannot_hide(tiny, numbers):
    # One server, 20 ms each, 10 ms between the intended times: the k-th request is late by at least 10 ms more.
    run = drive_open(tiny(base_ms=20, cap=1), Constant(100), numbers, duration_s=0.2, warmup_s=0)
    latencies_s = [row.latency_s for row in sorted(run.requests, key=lambda row: row.intended_s)]
    assert all(latency_s >= 0.02 + 0.01 * k - 1e-6 for k, latency_s in enumerate(latencies_s))


def test_refused_requests_are_rows_of_the_run_and_misses(tiny, numbers):
    run = drive_open(tiny(base_ms=100, cap=1, queue=1), Constant(100), numbers, duration_s=0.3, warmup_s=0)
    outcomes = [row.outcome for row in run.requests]
    assert len(outcomes) == run.offered == 30
    assert outcomes.count("rejected") >= 20
    metrics = summarise(run, slo_ms=10_000)
    assert metrics.attainment == outcomes.count("ok") / 30
    assert metrics.p99.value_ms == float("inf")


def test_a_future_that_never_resolves_voids_the_run_and_counts_as_a_miss(tiny, numbers):
    run = drive_open(tiny(lose={3, 7}), Constant(100), numbers, duration_s=0.2, warmup_s=0, drain_s=0.2)
    assert run.lost == 2
    assert "2 requests had no answer 0.2 s after the last send" in run.void
    assert (summarise(run).lost, summarise(run).ok) == (2, 18)
    with pytest.raises(RunVoid, match="2 requests had no answer"):
        run.valid_or_raise()


def test_a_request_without_a_row_voids_the_run(tiny, numbers):
    run = drive_open(tiny(forget={5}), Constant(100), numbers, duration_s=0.2, warmup_s=0)
    assert "wrote no row for 1 requests" in run.void
    assert run.lost == 1


def test_a_generator_that_is_held_up_voids_its_run(tiny, numbers):
    # Each submit takes 20 ms, the schedule leaves 5 ms: the lag grows without end.
    run = drive_open(tiny(submit_s=0.02), Constant(200), numbers, duration_s=0.2, warmup_s=0)
    assert run.offered == 40
    assert run.lag_p99_ms > 100
    assert "the generator was late" in run.void


@pytest.mark.parametrize(
    ("lag_ms", "p50_ms", "void"),
    [(5.0, 1_000, False), (5.01, 1_000, True), (1.0, 20, False), (1.01, 20, True), (4.9, float("nan"), False)],
)
def test_the_rule_is_five_milliseconds_or_five_percent_of_the_median(lag_ms, p50_ms, void):
    assert bool(late(lag_ms, p50_ms)) is void


def test_a_run_without_requests_is_void(tiny, numbers):
    run = drive_open(tiny(), Replay(()), numbers, duration_s=0.05, warmup_s=0)
    assert run.void == "no request fell into the window"


def test_a_valid_run_is_handed_through():
    run = Run((), (), 1.0, 0, 0.0, "")
    assert run.valid_or_raise() is run


def test_stop_ends_a_long_run_at_once_with_a_shorter_window(tiny, numbers):
    stop = Event()
    server = tiny(on_submit=lambda number: stop.set() if number == 5 else None)
    begun_s = time.perf_counter()
    run = drive_open(server, Constant(100), numbers, duration_s=3_600, warmup_s=0, stop=stop)
    assert time.perf_counter() - begun_s < 60
    assert run.stopped
    assert run.window_s < 60
    assert run.offered == len(run.requests) == 6


def test_stop_does_not_wait_for_an_answer_that_does_not_come(tiny, numbers):
    stop = Event()
    server = tiny(lose={0}, on_submit=lambda number: stop.set())
    run = drive_open(server, Constant(100), numbers, duration_s=3_600, warmup_s=0, drain_s=3_600, stop=stop)
    assert "1 requests had no answer 0.5 s" in run.void


def test_what_submit_raises_is_raised_by_the_driver(tiny, numbers):
    server = tiny()
    server.close()
    with pytest.raises(EngineClosed, match="closed"):
        drive_open(server, Constant(100), numbers, duration_s=10, warmup_s=0)


def test_rows_of_other_users_of_the_engine_are_left_out(tiny, numbers):
    server = tiny()
    server.submit("before").result()
    server._on_submit = lambda number: server.submit("beside") if number == 3 else None
    run = drive_open(server, Constant(100), numbers, duration_s=0.1, warmup_s=0)
    assert len(server.records.requests()) == 12
    assert run.offered == len(run.requests) == 10


def test_a_closed_loop_keeps_exactly_its_concurrency_in_flight(tiny, numbers):
    # The server does nothing until 8 wait: fewer in flight would hang, more would make a larger batch.
    stop = Event()
    server = tiny(least=8, cap=100, on_submit=lambda number: stop.set() if number == 799 else None)
    run = drive_closed(server, numbers, concurrency=8, duration_s=3_600, warmup_s=0, stop=stop)
    assert {step.rows for step in server.records.steps()} == {8}
    assert (run.void, run.lag_p99_ms, run.lost) == ("", 0, 0)
    assert run.offered == len(run.requests) > 0


def test_a_closed_loop_meets_a_full_queue_and_goes_on(tiny, numbers):
    run = drive_closed(tiny(base_ms=5, cap=1, queue=1), numbers, concurrency=8, duration_s=0.2, warmup_s=0)
    outcomes = {row.outcome for row in run.requests}
    assert outcomes == {"ok", "rejected"}
    assert len(run.requests) == run.offered


def test_a_closed_loop_stops_when_told(tiny, numbers):
    stop = Event()
    server = tiny(on_submit=lambda number: stop.set() if number == 300 else None)
    run = drive_closed(server, numbers, concurrency=2, duration_s=3_600, warmup_s=0, stop=stop)
    assert run.stopped
    assert len(server.payloads) == 301
    assert run.lost == 0


def test_repeats_need_three_different_seeds():
    assert repeat(lambda seed: seed, seeds=(4, 5, 6)) == (4, 5, 6)
    for seeds in ((1, 2), (1, 1, 2)):
        with pytest.raises(SettingError, match="at least 3, all different"):
            repeat(lambda seed: seed, seeds=seeds)


@pytest.mark.parametrize("settings", [{"duration_s": 0}, {"duration_s": 1, "warmup_s": -1}])
def test_times_outside_their_limits_are_named(tiny, numbers, settings):
    with pytest.raises(SettingError, match=r"_s is (0|-1)"):
        drive_open(tiny(), Constant(10), numbers, **settings)
