"""The batcher as its users see it."""

import asyncio
import math
import time
from concurrent.futures import wait
from functools import partial
from threading import Event, Thread

import numpy as np
import pytest
import torch

from labkit.batching import Batcher, FixedSize, Greedy, MaxWait, Run, WaitUntil, batched
from labkit.engine import Engine
from labkit.errors import (
    EngineClosed,
    LabkitError,
    ModelFailed,
    OutOfMemory,
    PrepareFailed,
    QueueFull,
    SettingError,
    WorkerDied,
)


def test_it_is_an_engine():
    with Batcher(list) as batcher:
        assert isinstance(batcher, Engine)


@pytest.mark.parametrize(
    ("payloads", "model", "answers"),
    [
        ([1, 2], lambda rows: [row + 1 for row in rows], [2, 3]),
        ([np.float32(1), np.float32(2)], lambda rows: [float(row) for row in rows], [1.0, 2.0]),
        (["a", "b"], lambda rows: tuple(row.upper() for row in rows), ["A", "B"]),
        ([{"x": 1}, {"x": 2}], lambda rows: [row["x"] for row in rows], [1, 2]),
    ],
)
def test_any_kind_of_row_is_answered(payloads, model, answers):
    with Batcher(model) as batcher:
        assert batcher.submit_many(payloads).result(20) == answers


def test_a_module_is_run_on_batches_and_left_where_it_was():
    model = torch.nn.Linear(3, 2).eval()
    rows = torch.randn(5, 3)
    with Batcher(model) as batcher:
        answers = batcher.submit_many(list(rows)).result(20)
    torch.testing.assert_close(torch.stack(answers), model(rows))


def test_await_answers_in_an_event_loop_and_many_calls_share_batches(gate):
    async def main():
        calls = [asyncio.ensure_future(batcher(n)) for n in range(10)]
        await asyncio.sleep(0)
        gate.open()
        return await asyncio.gather(*calls)

    with Batcher(gate) as batcher:
        batcher.submit("running")
        gate.wait_begun()
        assert asyncio.run(main()) == list(range(10))
    assert gate.sizes == [1, 10]


def test_an_awaiting_caller_that_gives_up_withdraws_its_request(gate):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(batcher("impatient"), 0.01)

    with Batcher(gate) as batcher:
        batcher.submit("running")
        gate.wait_begun()
        asyncio.run(main())
        assert batcher.snapshot().cancelled == 1
        assert batcher.snapshot().queued == 0
        gate.open()
    assert gate.batches == [["running"]]


def test_an_awaiting_caller_gets_the_error_itself():
    def refuse(rows):
        raise ValueError("no")

    async def main():
        with pytest.raises(ModelFailed, match="no"):
            await batcher(1)

    with Batcher(refuse) as batcher:
        asyncio.run(main())


class TestDecorator:
    def test_calls_from_many_threads_share_batches_and_get_their_own_answers(self, gate):
        @batched(max_rows=16)
        def double(numbers):
            return [2 * n for n in gate(numbers)]

        answers = {}

        def call(n):
            answers[n] = double(n)

        first = double.submit(99)
        gate.wait_begun()
        threads = [Thread(target=partial(call, n)) for n in range(10)]
        for thread in threads:
            thread.start()
        while double.batcher.snapshot().queued < 10:
            time.sleep(0.001)
        gate.open()
        for thread in threads:
            thread.join(20)
        assert first.result() == 198
        assert answers == {n: 2 * n for n in range(10)}
        assert gate.sizes == [1, 10]
        double.batcher.close()

    def test_the_function_keeps_its_name_and_its_errors(self):
        @batched()
        def halve(numbers):
            """Half of each."""
            return [10 // n for n in numbers]

        assert (halve.__name__, halve.__doc__) == ("halve", "Half of each.")
        with pytest.raises(ModelFailed, match="ZeroDivisionError"):
            halve(0)
        assert halve(5) == 2
        assert halve.batcher is halve.batcher
        halve.batcher.close()
        with pytest.raises(EngineClosed):
            halve(1)


class TestSubmitMany:
    def test_it_is_all_or_none_when_the_queue_is_full(self, gate):
        with Batcher(gate, max_rows=4, max_queue=4) as batcher:
            batcher.submit("running")
            gate.wait_begun()
            first = batcher.submit_many([1, 2])
            with pytest.raises(QueueFull):
                batcher.submit_many([3, 4, 5])
            second = batcher.submit_many([6, 7])
            gate.open()
            assert (first.result(20), second.result(20)) == ([1, 2], [6, 7])
            assert batcher.snapshot().rejected == 3
        assert gate.batches == [["running"], [1, 2, 6, 7]]

    def test_more_rows_than_could_ever_wait_are_a_mistake_not_a_full_queue(self):
        with Batcher(list, max_rows=4, max_queue=4) as batcher, pytest.raises(SettingError, match=r"5 rows.*4"):
            batcher.submit_many(range(5))

    def test_cancelling_withdraws_every_row_that_waits(self, gate):
        with Batcher(gate, max_rows=2) as batcher:
            many = batcher.submit_many(range(6))
            gate.wait_begun()
            assert many.cancel()
            assert wait([many], 20).done == {many}
            gate.open()
        assert gate.batches in ([[0, 1]], [[0]])
        assert batcher.snapshot().cancelled == 6 - len(gate.batches[0])

    def test_one_failed_row_fails_the_whole_and_withdraws_what_waits(self, gate):
        def strict(rows):
            gate(rows)
            if 1 in rows:
                raise ValueError("one")
            return rows

        with Batcher(strict, max_rows=2) as batcher:
            batcher.submit(0)
            gate.wait_begun()
            many = batcher.submit_many([1, 2, 3, 4, 5, 6])
            gate.open()
            with pytest.raises(ModelFailed, match="one"):
                many.result(20)
        assert [3, 4] not in gate.batches or batcher.snapshot().cancelled == 2


def test_what_comes_at_once_is_shared_by_all_who_are_free(gate, until):
    """One worker is called; it must call the next when it leaves something."""
    with Batcher(gate, max_rows=1, instances=3) as batcher:
        until(lambda: batcher._dispatcher._idle == 3)
        many = batcher.submit_many(range(3))
        for _ in range(3):
            gate.wait_begun()
        gate.open()
        assert many.result(20) == [0, 1, 2]


class TestConfigure:
    def test_policy_and_cap_change_while_requests_wait(self, gate):
        with Batcher(gate, policy=FixedSize(4, max_wait_ms=50_000), max_rows=4) as batcher:
            futures = [batcher.submit(n) for n in range(3)]
            assert gate.batches == []
            batcher.configure(policy=Greedy(), max_rows=2)
            gate.open()
            assert [future.result(20) for future in futures] == [0, 1, 2]
            assert gate.sizes == [2, 1]
            assert batcher.snapshot().policy == "Greedy()"

    def test_a_bad_value_changes_nothing(self):
        with Batcher(list) as batcher:
            before = batcher._dispatcher.limits
            for bad in ({"max_rows": 0}, {"max_rows": 4, "sizes": (3, 1)}, {"max_rws": 3}):
                with pytest.raises(SettingError):
                    batcher.configure(policy=MaxWait(5), **bad)
            assert batcher._dispatcher.limits is before
            assert batcher.snapshot().policy == "Greedy()"

    def test_a_larger_cap_gets_a_larger_pool_and_what_is_staged_stays_valid(self, gate, until):
        class InPlace:
            def __call__(self, n):
                return torch.full((2,), float(n))

            def into(self, n, place):
                return place((2,), torch.float32).fill_(n)

        with Batcher(gate, prepare=InPlace(), max_rows=2) as batcher:
            futures = [batcher.submit(0)]
            gate.wait_begun()
            futures += [batcher.submit(n) for n in range(1, 7)]
            until(lambda: batcher._dispatcher.queued_rows == 6)
            batcher.configure(max_rows=16)
            futures += [batcher.submit(n) for n in range(7, 20)]
            until(lambda: batcher._dispatcher.queued_rows == 19)
            gate.open()
            assert [future.result(20).tolist() for future in futures] == [[n, n] for n in range(20)]

    def test_a_new_policy_clears_the_note_about_the_old_one(self):
        class Bad:
            def decide(self, view):
                raise RuntimeError("broken")

        with Batcher(list, policy=Bad()) as batcher:
            assert batcher.submit(1).result(20) == 1
            assert "RuntimeError: broken" in batcher.snapshot().notes[0]
            batcher.configure(policy=Greedy())
            assert batcher.snapshot().notes == ()


class TestPassingOver:
    def test_whoever_a_policy_passes_over_stands_back_and_is_answered_all_the_same(self, gate):
        seen = []

        class NewestFirst:
            def decide(self, view):
                seen.append(len(view.arrivals_s()))
                return Run(1, pass_over=view.rows - 1)

        with Batcher(gate, policy=NewestFirst()) as batcher:
            futures = [batcher.submit(0)]
            gate.wait_begun()
            futures += [batcher.submit(n) for n in range(1, 4)]
            gate.open()
            assert [future.result(20) for future in futures] == [0, 1, 2, 3]
            # Once each: 1 and 2 stand back for 3, and then come in their order.
            assert gate.batches == [[0], [3], [1], [2]]
            assert seen == [1, 3, 2, 1]


class TestPolicyFaults:
    @pytest.mark.parametrize(
        "decide",
        [
            lambda view: None,
            lambda view: 4,
            lambda view: Run("all"),
            lambda view: Run(None),
            lambda view: WaitUntil(math.nan),
            lambda view: WaitUntil(None),
            lambda view: 1 / 0,
            lambda view: exit(),
        ],
    )
    def test_a_policy_that_decides_nonsense_costs_nobody_an_answer(self, decide):
        class Bad:
            pass

        Bad.decide = staticmethod(decide)
        with Batcher(list, policy=Bad()) as batcher:
            assert [batcher.submit(n).result(20) for n in range(3)] == [0, 1, 2]
            notes = batcher.snapshot().notes
            assert len(notes) == 1
            assert "the policy raised" in notes[0]

    @pytest.mark.parametrize(("asked", "run"), [(-5, 1), (0, 1), (2.9, 2), (100, 4)])
    def test_a_decision_is_held_within_the_bounds_of_a_batch(self, gate, asked, run):
        class Odd:
            def decide(self, view):
                return Run(asked)

        with Batcher(gate, policy=Odd(), max_rows=4) as batcher:
            batcher.submit(0)
            gate.wait_begun()
            futures = [batcher.submit(n) for n in range(8)]
            gate.open()
            wait(futures, 20)
        assert set(gate.sizes[1:]) <= {run, 8 % run or run}

    def test_an_observer_that_raises_costs_nobody_an_answer_and_no_second_run(self, gate):
        class Bad(Greedy):
            def observe(self, rows, seconds):
                raise RuntimeError("bad observer")

        gate.open()
        with Batcher(gate, policy=Bad()) as batcher:
            assert batcher.submit_many([1, 2, 3]).result(20) == [1, 2, 3]
            assert "bad observer" in batcher.snapshot().notes[0]
        assert sum(gate.sizes) == 3

    def test_waiting_beyond_the_range_of_the_clock_is_only_a_long_wait(self):
        class Never:
            def decide(self, view):
                return WaitUntil(1e30) if view.rows < 2 else Run(2)

        with Batcher(list, policy=Never()) as batcher:
            first = batcher.submit(1, timeout_s=1e30)
            time.sleep(0.01)
            assert not first.done()
            second = batcher.submit(2, timeout_s=1e30)
            assert (first.result(20), second.result(20)) == (1, 2)


class TestQueueFull:
    def test_it_is_refused_at_once_with_a_hint_and_a_record(self, gate):
        with Batcher(gate, max_rows=4, max_queue=4) as batcher:
            batcher.submit("running")
            gate.wait_begun()
            waiting = [batcher.submit(n) for n in range(4)]
            with pytest.raises(QueueFull, match="4 requests wait; max_queue is 4") as told:
                batcher.submit("one too many", intended_s=12.5)
            assert told.value.retry_after_s > 0
            (row,) = batcher.records.requests()
            assert (row.outcome, row.step, row.intended_s) == ("rejected", -1, 12.5)
            assert "max_queue is 4" in row.error
            waiting[0].cancel()
            assert not batcher.submit("fits again").done()
            gate.open()
        assert batcher.snapshot().rejected == 1

    def test_the_hint_follows_what_was_learned(self, gate):
        with Batcher(gate, max_rows=1, max_queue=1) as batcher:
            batcher.submit("running")
            gate.wait_begun()
            batcher.submit("waiting")
            batcher._dispatcher.learn(None, 1, 1, 7.5)
            with pytest.raises(QueueFull) as told:
                batcher.submit("refused")
            assert told.value.retry_after_s == 7.5
            gate.open()

    def test_the_bytes_of_waiting_payloads_are_bounded_and_returned(self, gate):
        with Batcher(gate, max_queue_bytes=100) as batcher:
            batcher.submit(b"x" * 60)
            gate.wait_begun()
            waiting = batcher.submit(b"x" * 60)
            assert batcher.snapshot().queued_bytes == 60
            with pytest.raises(QueueFull, match="60 bytes wait and 60 came; max_queue_bytes is 100"):
                batcher.submit(b"x" * 60)
            with pytest.raises(SettingError, match="never fit"):
                batcher.submit(b"x" * 101)
            batcher.submit(b"x" * 40)
            waiting.cancel()
            assert batcher.snapshot().queued_bytes == 40
            gate.open()
        assert batcher.snapshot().queued_bytes == 0


class TestFaults:
    def test_an_error_in_preprocessing_fails_that_item_alone(self):
        with Batcher(list, prepare=lambda n: 10 // n) as batcher:
            futures = [batcher.submit(n) for n in (1, 0, 5)]
            assert futures[0].result(20) == 10
            assert futures[2].result(20) == 2
            with pytest.raises(PrepareFailed, match="ZeroDivisionError") as told:
                futures[1].result(20)
            assert isinstance(told.value.__cause__, ZeroDivisionError)
            assert "10 // n" in told.value.__cause__.__notes__[0]

    @pytest.mark.parametrize("prepare", [None, lambda payload: payload])
    @pytest.mark.parametrize(
        "options",
        [
            {"key": lambda row: [row]},
            {"key": lambda row: 1 / 0},
            {"cost": lambda row: "dear"},
            {"cost": lambda row: -1},
            {"cost": lambda row: math.nan},
            {"cost": lambda row: 5, "max_cost": 4},
            {"key": lambda row: exit()},
        ],
    )
    def test_a_bad_key_or_cost_fails_that_item_alone_and_holds_up_nothing(self, options, prepare):
        (name, function), *_ = options.items()
        options = options | {name: lambda row: function(row) if row == "bad" else 1}
        with Batcher(list, prepare=prepare, **options) as batcher:
            try:
                bad = batcher.submit("bad")
            except SystemExit:
                assert prepare is None, "in the sender's own thread, its SystemExit is its own"
            else:
                with pytest.raises(PrepareFailed):
                    bad.result(20)
            assert batcher.submit("good").result(20) == "good"
            assert batcher.snapshot().failed == 1

    def test_system_exit_in_preprocessing_does_not_end_the_preparing_of_others(self):
        with Batcher(list, prepare=lambda n: exit() if n == 1 else n) as batcher:
            futures = [batcher.submit(n) for n in range(4)]
            with pytest.raises(PrepareFailed, match="SystemExit"):
                futures[1].result(20)
            assert [futures[n].result(20) for n in (0, 2, 3)] == [0, 2, 3]

    def test_an_early_copy_that_fails_does_not_end_the_preparing_of_others(self):
        with Batcher(list, prepare=lambda n: n) as batcher:
            runner = batcher._workers[0].runner

            def staged(request):
                if request.row == 1:
                    raise torch.OutOfMemoryError("no room for the mirror")

            runner.staged = staged
            futures = [batcher.submit(n) for n in range(3)]
            with pytest.raises(PrepareFailed, match="no room"):
                futures[1].result(20)
            assert [futures[n].result(20) for n in (0, 2)] == [0, 2]

    def test_ctrl_c_while_submitting_leaves_nothing_behind(self):
        def interrupted(row):
            if row == 2:
                raise KeyboardInterrupt
            return None

        with Batcher(list, key=interrupted, policy=FixedSize(32, max_wait_ms=50_000)) as batcher:
            with pytest.raises(KeyboardInterrupt):
                batcher.submit_many([1, 2, 3])
            assert batcher.snapshot().queued == 0
            assert len(batcher._ledger) == 0

    def test_memory_that_runs_out_halves_the_batch_and_the_cap_is_remembered(self, gate):
        def small(rows):
            gate(rows)
            if len(rows) > 5:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return rows

        with Batcher(small, max_rows=16) as batcher:
            batcher.submit(0)
            gate.wait_begun()
            futures = [batcher.submit(n) for n in range(48)]
            gate.open()
            assert [future.result(20) for future in futures] == list(range(48))
            assert gate.sizes[:6] == [1, 16, 8, 4, 4, 8]
            assert set(gate.sizes[8:]) == {4}
            assert "at most 4 rows" in batcher.snapshot().notes[0]
            short = [step for step in batcher.records.steps() if step.outcome == "out_of_memory"]
            assert [step.rows for step in short] == [16, 8, 8]

    def test_an_item_too_large_for_the_memory_fails_alone(self):
        def small(rows):
            if "huge" in rows:
                raise MemoryError("huge")
            return rows

        with Batcher(small) as batcher:
            with pytest.raises(OutOfMemory, match="huge"):
                batcher.submit("huge").result(20)
            assert batcher.submit("tiny").result(20) == "tiny"

    def test_a_worker_that_dies_is_replaced_and_its_batch_is_told(self, gate):
        def deadly(rows):
            gate(rows)
            if "deadly" in rows:
                raise SystemExit("gone")
            return rows

        with Batcher(deadly) as batcher:
            dead = batcher.submit("deadly")
            gate.wait_begun()
            behind = batcher.submit("behind")
            gate.open()
            with pytest.raises(WorkerDied, match="SystemExit: gone"):
                dead.result(20)
            assert behind.result(20) == "behind"
            assert "1 workers died" in batcher.snapshot().notes[0]

    def test_without_isolation_the_batch_runs_once_and_fails_whole(self, gate):
        def refuse(rows):
            gate(rows)
            raise ValueError("no")

        with Batcher(refuse, isolate=False) as batcher:
            batcher.submit(0)
            gate.wait_begun()
            futures = [batcher.submit(n) for n in range(4)]
            gate.open()
            errors = [future.exception(20) for future in futures]
        assert all(isinstance(error, ModelFailed) for error in errors)
        assert len(set(map(id, errors))) == 4
        assert gate.sizes == [1, 4]

    def test_an_exception_among_the_answers_fails_that_row_alone(self):
        with Batcher(lambda rows: [ValueError("odd") if n % 2 else n for n in rows]) as batcher:
            futures = [batcher.submit(n) for n in range(4)]
            assert [futures[n].result(20) for n in (0, 2)] == [0, 2]
            for n in (1, 3):
                with pytest.raises(ValueError, match="odd"):
                    futures[n].result(20)

    def test_a_callback_that_raises_costs_its_neighbours_nothing(self, gate):
        def bad(future):
            raise RuntimeError("a callback's own fault")

        def worse(future):
            raise SystemExit

        with Batcher(gate) as batcher:
            batcher.submit(0)
            gate.wait_begun()
            futures = [batcher.submit(n) for n in range(3)]
            futures[0].add_done_callback(bad)
            futures[1].add_done_callback(worse)
            gate.open()
            assert [future.result(20) for future in futures] == [0, 1, 2]
            assert batcher.submit("after").result(20) == "after"

    def test_a_callback_may_submit_again(self):
        answers = []
        enough = Event()

        def again(future):
            answers.append(future.result())
            if len(answers) < 5:
                batcher.submit(len(answers)).add_done_callback(again)
            else:
                enough.set()

        with Batcher(list) as batcher:
            batcher.submit(0).add_done_callback(again)
            assert enough.wait(20)
        assert answers == [0, 1, 2, 3, 4]


class TestWarmup:
    def test_by_default_the_powers_of_two_and_the_cap_are_run_on_each_device(self, gate):
        gate.open()
        with Batcher(gate, max_rows=12, instances=2) as batcher:
            batcher.warmup("payload")
            assert gate.sizes == [1, 1, 2, 2, 4, 4, 8, 8, 12, 12]
            assert batcher.records.requests() == []
            assert batcher.snapshot().ok == 0

    def test_what_fails_is_raised_and_no_slot_is_lost(self):
        class InPlace:
            def __call__(self, n):
                return torch.zeros(2)

            def into(self, n, place):
                return place((2,), torch.float32)

        def refuse(batch):
            raise ValueError("cold")

        with Batcher(refuse, prepare=InPlace()) as batcher:
            with pytest.raises(ValueError, match="cold"):
                batcher.warmup(1)
            assert batcher.snapshot().pool.used_bytes == 0


class TestSnapshotAndRecords:
    def test_the_snapshot_tells_what_waits_and_runs_and_how_all_ended(self, gate, until):
        with Batcher(gate, max_rows=2, max_queue=4, instances=2) as batcher:
            running = [batcher.submit(n) for n in range(2)]
            gate.wait_begun()
            until(lambda: sum(gate.sizes) == 2)
            until(lambda: batcher.snapshot().running == 2)
            waiting = [batcher.submit(n) for n in range(4)]
            until(lambda: batcher.snapshot().queued == 6 - sum(gate.sizes))
            seen = batcher.snapshot()
            assert (seen.open, seen.workers) == (True, 2)
            assert seen.queued + seen.running == 6
            assert 1 <= seen.busy_workers <= 2
            waiting[3].cancel()
            gate.open()
            wait(running + waiting[:3], 20)
        seen = batcher.snapshot()
        assert (seen.open, seen.queued, seen.running, seen.ok, seen.cancelled) == (False, 0, 0, 5, 1)

    def test_every_request_and_step_has_its_row(self, gate):
        def strict(rows):
            gate(rows)
            if "bad" in rows:
                raise ValueError("bad")
            return rows

        with Batcher(strict, prepare=lambda payload: payload) as batcher:
            batcher.submit(0).add_done_callback(lambda _: None)
            gate.wait_begun()
            sent_s = time.perf_counter()
            good = batcher.submit("good", intended_s=sent_s - 1, priority=0)
            bad = batcher.submit("bad", priority=1)
            gone = batcher.submit("gone", priority=2)
            gone.cancel()
            gate.open()
            wait([good, bad], 20)
        rows = {row.request: row for row in batcher.records.requests()}
        steps = {step.step: step for step in batcher.records.steps() if step.stage == "compute"}
        assert [rows[n].outcome for n in range(4)] == ["ok", "ok", "failed", "cancelled"]
        assert [rows[n].priority for n in range(4)] == [0, 0, 1, 2]
        assert rows[1].intended_s == sent_s - 1
        assert rows[1].latency_s > 1
        assert "ValueError" in rows[2].error
        assert rows[3].step == -1
        assert math.isnan(rows[3].started_s)
        for number in (0, 1, 2):
            row, step = rows[number], steps[rows[number].step]
            assert row.arrived_s <= row.ready_s <= row.started_s <= row.finished_s
            assert row.started_s == step.started_s, "the step that answered it, not the first try"
            assert step.outcome == ("failed" if number == 2 else "ok")
        assert all(step.finished_s >= step.started_s for step in steps.values())
        assert [(step.rows, step.outcome) for step in steps.values()] == [
            (1, "ok"),
            (2, "failed"),
            (1, "ok"),
            (1, "failed"),
        ]

    def test_whoever_sees_an_answer_finds_its_row(self):
        found = []
        with Batcher(lambda rows: [1 // row for row in rows]) as batcher:
            for n in range(50):
                future = batcher.submit(n % 2)
                future.add_done_callback(lambda _: found.append(len(batcher.records.requests())))
                wait([future], 20)
                assert len(batcher.records.requests()) == n + 1
        assert found == list(range(1, 51))


@pytest.mark.parametrize(
    "bad",
    [{"prepare_threads": 0}, {"instances": 0}, {"device": ()}, {"max_rows": 0}, {"policy": MaxWait, "max_queue": -1}],
)
def test_a_bad_argument_is_refused_before_any_thread_starts(bad):
    with pytest.raises(SettingError):
        Batcher(list, **bad)


@pytest.mark.parametrize("limit_s", [0, -1, math.nan])
def test_a_time_limit_must_be_positive(limit_s):
    with Batcher(list) as batcher, pytest.raises(LabkitError, match="timeout_s"):
        batcher.submit(1, timeout_s=limit_s)


def test_a_closed_loop_that_left_its_answers_behind_disturbs_nobody(gate):
    """The worker's answer comes when the loop that waited for it is closed already."""
    with Batcher(gate) as batcher:

        async def leave():
            batcher(1)
            await asyncio.sleep(0)

        asyncio.run(leave())
        gate.open()
        assert batcher.submit(2).result(20) == 2
