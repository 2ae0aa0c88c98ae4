"""`await batcher(x)`: answers arrive on the caller's event loop, whatever the loop, the worker and the caller do."""

import asyncio
import gc
import math
import random
import threading
import weakref
from collections import Counter
from contextlib import suppress

import pytest

from labkit.batching import Batcher, FixedSize
from labkit.errors import DeadlineExceeded, EngineClosed, EngineError, ModelFailed, QueueFull, WorkerDied


def rows_by_outcome(batcher):
    return Counter(row.outcome for row in batcher.records.requests())


def settled(batcher):
    return len(batcher._ledger) == 0 and batcher._dispatcher.waiting == 0


@pytest.mark.usefixtures("_hasty")
def test_two_loops_in_two_threads_each_get_their_own_answers():
    with Batcher(lambda rows: [2 * row for row in rows]) as batcher:
        answers, strays = {}, []

        async def call(n):
            answers[n] = await batcher(n)
            if threading.current_thread().name != f"loop-{n % 2}":
                strays.append(n)

        async def main(offset):
            for start in range(offset, 400, 40):
                await asyncio.gather(*[call(n) for n in range(start, start + 40, 2)])

        threads = [
            threading.Thread(target=lambda k=k: asyncio.run(main(k)), name=f"loop-{k}", daemon=True) for k in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive(), "an answer never reached its loop"
    assert answers == {n: 2 * n for n in range(400)}
    assert strays == []


def test_one_loop_after_another_may_use_the_same_batcher():
    with Batcher(list) as batcher:
        for n in range(5):
            assert asyncio.run(asyncio.wait_for(_call(batcher, n), 20)) == n


async def _call(batcher, payload, **options):
    return await batcher(payload, **options)


def test_without_a_running_loop_nothing_is_submitted():
    with Batcher(list) as batcher:
        with pytest.raises(RuntimeError):
            batcher(1)
        assert batcher.records.requests() == []
        assert settled(batcher)


def test_a_loop_that_ends_before_its_answers_harms_nobody(gate):
    async def main():
        kept.extend([batcher("lost"), batcher("waiting")])
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.wait_begun)

    kept = []
    with Batcher(gate, max_rows=1) as batcher:
        asyncio.run(main())
        gate.open()
        assert batcher.submit("after").result(20) == "after"
        assert asyncio.run(_call(batcher, "another loop")) == "another loop"


def test_giving_up_while_the_batch_runs_is_answered_at_once(gate):
    async def main():
        task = asyncio.ensure_future(_call(batcher, "slow"))
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.wait_begun)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 20)
        gate.open()
        assert await batcher("next") == "next"

    with Batcher(gate) as batcher:
        asyncio.run(main())
    assert sum(rows_by_outcome(batcher).values()) == 2
    assert settled(batcher)


@pytest.mark.parametrize("drain", [True, False])
def test_closing_answers_those_who_await(gate, drain):
    async def main():
        tasks = [asyncio.ensure_future(_call(batcher, n)) for n in range(4)]
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.wait_begun)
        if drain:
            gate.open()
        await asyncio.to_thread(batcher.close, drain=drain)
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    batcher = Batcher(gate, max_rows=1)
    answers = asyncio.run(main())
    if drain:
        assert answers == [0, 1, 2, 3]
    else:
        assert all(isinstance(answer, EngineClosed) for answer in answers)


def test_each_kind_of_fault_reaches_the_one_who_awaits(gate):
    def strict(rows):
        gate(rows)
        if "deadly" in rows:
            raise SystemExit
        if "bad" in rows:
            raise ValueError("bad")
        return rows

    async def main():
        running = asyncio.ensure_future(_call(batcher, "running"))
        await asyncio.sleep(0)
        await asyncio.to_thread(gate.wait_begun)
        with pytest.raises(DeadlineExceeded):
            await batcher("late", timeout_s=0.01)
        waiting = [asyncio.ensure_future(_call(batcher, name)) for name in ("bad", "deadly")]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            batcher("one too many")
        gate.open()
        assert await running == "running"
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(answers[0], ModelFailed)
        assert isinstance(answers[1], WorkerDied)
        assert await batcher("fine") == "fine"

    with Batcher(strict, max_rows=1, max_queue=2) as batcher:
        asyncio.run(asyncio.wait_for(main(), 20))
    assert rows_by_outcome(batcher) == {"ok": 2, "failed": 2, "expired": 1, "rejected": 1}


def test_an_answer_that_no_coroutine_can_raise_does_not_hold_up_its_neighbours(gate):
    async def main():
        tasks = [asyncio.ensure_future(_call(batcher, n)) for n in range(4)]
        await asyncio.sleep(0)
        gate.open()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    with Batcher(lambda rows: [StopIteration() if row == 1 else row for row in gate(rows)]) as batcher:
        batcher.submit("running")
        gate.wait_begun()
        answers = asyncio.run(main())
    assert [answers[n] for n in (0, 2, 3)] == [0, 2, 3]
    assert "StopIteration" in str(answers[1])


def test_answers_for_a_closed_loop_are_not_kept(gate):
    async def main():
        batcher("lost")
        await asyncio.to_thread(gate.wait_begun)

    with Batcher(gate) as batcher:
        asyncio.run(main())
        gate.open()
        batcher.submit("after").result(20)
        assert not batcher._mailbox.answers


def test_withdrawn_calls_are_never_executed_and_leave_at_once(gate):
    async def main():
        tasks = [asyncio.ensure_future(_call(batcher, n)) for n in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks[::2], return_exceptions=True)
        assert batcher.snapshot().queued == 25
        gate.open()
        return await asyncio.wait_for(asyncio.gather(*tasks[1::2]), 20)

    with Batcher(gate, max_rows=50) as batcher:
        batcher.submit("running")
        gate.wait_begun()
        assert asyncio.run(main()) == list(range(1, 50, 2))
    assert gate.batches == [["running"], list(range(1, 50, 2))]
    assert rows_by_outcome(batcher) == {"ok": 26, "cancelled": 25}


@pytest.mark.parametrize("seed", range(8))
def test_a_storm_of_callers_who_give_up_at_random_loses_nobody(seed):
    """Every awaiting caller returns, each request has one row, and what was withdrawn before its start never ran."""
    rng, executed = random.Random(seed), set()

    def model(rows):
        executed.update(rows)
        if any(row % 11 == 0 for row in rows):
            raise ValueError("eleven")
        return [-row for row in rows]

    async def call(n):
        with suppress(QueueFull):
            try:
                answer = await asyncio.wait_for(
                    batcher(n, timeout_s=rng.choice([None, 0.001])), rng.choice([0.0, 0.0005, 20, 20])
                )
            except TimeoutError:
                return "gave up"
            except EngineError as error:
                return type(error)
            assert answer == -n
            return "ok"
        return "refused"

    async def main():
        outcomes = Counter()
        for start in range(1, 400, 100):
            tasks = [asyncio.ensure_future(call(n)) for n in range(start, start + 100)]
            outcomes.update(await asyncio.wait_for(asyncio.gather(*tasks), 30))
        return outcomes

    with Batcher(model, max_rows=4, max_queue=80, instances=2) as batcher:
        outcomes = asyncio.run(main())
    assert sum(outcomes.values()) == 400
    assert outcomes["ok"] > 0
    assert outcomes["gave up"] > 0
    rows = batcher.records.requests()
    assert len({row.request for row in rows}) == len(rows) == 400
    assert settled(batcher)
    assert not {row.request + 1 for row in rows if row.outcome == "cancelled" and math.isnan(row.started_s)} & executed


def test_a_caller_who_waits_for_company_can_be_freed_by_closing():
    async def main():
        task = asyncio.ensure_future(_call(batcher, 1))
        await asyncio.sleep(0)
        await asyncio.to_thread(batcher.close)
        return await asyncio.wait_for(task, 20)

    batcher = Batcher(list, policy=FixedSize(8, max_wait_ms=50_000))
    assert asyncio.run(main()) == 1


def test_an_awaited_answer_that_nobody_holds_is_gone():
    class Thing:
        pass

    watch = []

    def model(rows):
        things = [Thing() for _ in rows]
        watch.extend(map(weakref.ref, things))
        return things

    async def main():
        for _ in range(10):
            await batcher(0, timeout_s=3600)
        for _ in range(1000):
            if not any(one() for one in watch):
                return True
            await asyncio.sleep(0.001)
        return False

    gc.collect()
    gc.disable()
    try:
        with Batcher(model) as batcher:
            assert asyncio.run(main())
    finally:
        gc.enable()
