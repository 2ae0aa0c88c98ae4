"""The pipeline is an `Engine`: futures, records, limits, order."""

import threading

import pytest
import running_stages as stages
import torch

from labkit.batching import Batcher
from labkit.engine import Engine
from labkit.errors import DeadlineExceeded, EngineClosed, ModelFailed, QueueFull, SettingError, UnknownName
from labkit.sharding.health import Health


class Gate:
    """A stage that waits until it is opened."""

    def __init__(self):
        self.opened = threading.Event()
        self.entered = threading.Event()

    def __call__(self, value):
        self.entered.set()
        self.opened.wait(30)
        return value


def test_it_is_an_engine(pipeline_of):
    assert isinstance(pipeline_of([stages.same], carrier="thread"), Engine)


@pytest.mark.parametrize("carrier", ["process", "thread"])
def test_a_row_for_each_request_and_for_each_step_of_each_stage(pipeline_of, carrier):
    pipeline = pipeline_of([stages.plus_one, stages.times_two], carrier=carrier, microbatch_rows=2)
    pipeline.submit(torch.zeros(5, 3), intended_s=1.0).result(30)
    (request,) = pipeline.records.requests()
    steps = pipeline.records.steps()
    assert (request.outcome, request.rows, request.intended_s) == ("ok", 5, 1.0)
    assert request.arrived_s <= request.ready_s <= request.started_s <= request.finished_s
    assert sorted(step.stage for step in steps) == ["stage0"] * 3 + ["stage1"] * 3
    assert sorted(step.rows for step in steps) == [1, 1, 2, 2, 2, 2]
    assert {step.cap for step in steps} == {2}
    assert all(step.device == "cpu" and step.started_s < step.finished_s for step in steps)
    assert request.step in {step.step for step in steps}


def test_microbatches_are_in_different_stages_at_the_same_time(pipeline_of):
    pipeline = pipeline_of([stages.Work(150), stages.Work(150)], microbatch_rows=1)
    pipeline.submit(torch.ones(2, 1)).result(30)
    pipeline.submit(torch.ones(12, 1)).result(30)
    steps = pipeline.records.steps()
    first = [step for step in steps if step.stage == "stage0"]
    second = [step for step in steps if step.stage == "stage1"]
    overlaps = [
        1 for one in first for two in second if one.started_s < two.finished_s and two.started_s < one.finished_s
    ]
    assert overlaps


def test_the_batcher_can_stand_in_front_of_it(pipeline_of):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    pipeline = pipeline_of(list(model), microbatch_rows=4)
    rows = torch.randn(30, 4)
    with Batcher(lambda batch: pipeline.submit(batch).result(), max_rows=8) as batcher:
        answers = [future.result(30) for future in [batcher.submit(row) for row in rows]]
    torch.testing.assert_close(torch.stack(answers), model(rows).detach())


def test_a_full_queue_refuses_at_once_and_says_when_to_come_again(pipeline_of):
    gate = Gate()
    pipeline = pipeline_of([gate], carrier="thread", max_queue=2, depth=1)
    running = pipeline.submit(torch.ones(1))
    waiting = [pipeline.submit(torch.ones(1)) for _ in range(2)]
    with pytest.raises(QueueFull) as refused:
        pipeline.submit(torch.ones(1))
    assert refused.value.retry_after_s > 0
    gate.opened.set()
    assert all(future.result(30) is not None for future in [running, *waiting])
    assert pipeline.snapshot().rejected == 1


def test_a_request_that_waits_can_be_cancelled_and_one_that_runs_cannot(pipeline_of):
    gate = Gate()
    pipeline = pipeline_of([gate], carrier="thread", depth=1)
    running, waiting = pipeline.submit(torch.ones(1)), pipeline.submit(torch.ones(1))
    assert gate.entered.wait(30)
    assert waiting.cancel()
    assert not running.cancel()
    gate.opened.set()
    running.result(30)
    pipeline.close()
    assert [row.outcome for row in pipeline.records.requests()] == ["cancelled", "ok"]
    assert len(pipeline.records.steps()) == 1


def test_a_request_whose_time_is_up_is_answered_while_its_stage_still_runs(pipeline_of):
    gate = Gate()
    pipeline = pipeline_of([gate], carrier="thread")
    with pytest.raises(DeadlineExceeded, match="50 ms"):
        pipeline.submit(torch.ones(1), timeout_s=0.05).result(30)
    gate.opened.set()
    assert pipeline.submit(torch.ones(1)).result(30) is not None
    assert pipeline.snapshot().expired == 1


def test_an_urgent_request_overtakes_those_that_wait(pipeline_of):
    gate = Gate()
    pipeline = pipeline_of([gate], carrier="thread", depth=1)
    order = []
    for name, priority in [("first", 0), ("late", 5), ("urgent", 0)]:
        future = pipeline.submit(torch.ones(1), priority=priority)
        future.add_done_callback(lambda _, name=name: order.append(name))
        assert gate.entered.wait(30)
    gate.opened.set()
    pipeline.close()
    assert order == ["first", "urgent", "late"]


def test_callbacks_may_submit_and_close(pipeline_of):
    pipeline = pipeline_of([stages.plus_one], carrier="thread")
    closed = threading.Event()

    def again(future):
        inner = pipeline.submit(future.result())
        inner.add_done_callback(lambda _: (pipeline.close(), closed.set()))

    pipeline.submit(torch.ones(1)).add_done_callback(again)
    assert closed.wait(30)
    assert pipeline.snapshot().health is Health.CLOSED


def test_closing_with_drain_finishes_what_was_accepted(pipeline_of):
    pipeline = pipeline_of([stages.Work(20), stages.plus_one], microbatch_rows=1)
    futures = [pipeline.submit(torch.ones(3, 1)) for _ in range(10)]
    pipeline.close(drain=True)
    assert all(torch.equal(future.result(0), torch.full((3, 1), 2.0)) for future in futures)


def test_closing_without_drain_answers_everybody_with_engine_closed(pipeline_of):
    gate = Gate()
    pipeline = pipeline_of([gate], carrier="thread")
    futures = [pipeline.submit(torch.ones(1)) for _ in range(5)]
    pipeline.close(drain=False)
    for future in futures:
        with pytest.raises(EngineClosed):
            future.result(0)
    gate.opened.set()
    with pytest.raises(EngineClosed):
        pipeline.submit(torch.ones(1))
    pipeline.close()


def test_draining_ends_at_its_time_limit(pipeline_of):
    gate = Gate()
    pipeline = pipeline_of([gate], carrier="thread")
    future = pipeline.submit(torch.ones(1))
    pipeline.close(drain=True, timeout_s=0.05)
    with pytest.raises(EngineClosed):
        future.result(0)
    gate.opened.set()


def test_a_stage_can_be_given_a_second_worker_while_it_runs_and_lose_it_again(pipeline_of):
    pipeline = pipeline_of([stages.same, stages.process_id], microbatch_rows=1)
    futures = [pipeline.submit(torch.zeros(4)) for _ in range(10)]
    pipeline.scale(1, 2).result(30)
    assert pipeline.snapshot().stages[1].ready == 2
    seen = set()
    for _ in range(200):
        seen |= set(pipeline.submit(torch.zeros(8)).result(30).tolist())
        if len(seen) == 2:
            break
    assert len(seen) == 2
    pipeline.scale(1, 1).result(30)
    assert len(set(pipeline.submit(torch.zeros(8)).result(30).tolist())) == 1
    assert all(future.result(30).shape == (4,) for future in futures)
    assert pipeline.snapshot().losses == 0


def test_workers_share_the_cores(pipeline_of):
    import os

    pipeline = pipeline_of([stages.threads_of_torch, stages.same])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert pipeline.submit(torch.zeros(1)).result(30).item() == max(1, cores // 2)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"microbatch_rows": 0}, "microbatch_rows"),
        ({"devices": ["cpu"]}, "devices"),
        ({"boundaries": (0, 2, 1)}, "boundaries"),
        ({"replicas": [1, 0]}, "replicas"),
        ({"dtypes": ["float32"]}, "dtypes"),
        ({"max_queue": 0}, "max_queue"),
        ({"spares": -1}, "spares"),
        ({"depth": 0}, "depth"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_settings_that_make_no_pipeline_are_refused(settings, what):
    from labkit.sharding.pipeline import Pipeline

    with pytest.raises(SettingError, match=what):
        Pipeline([stages.same, stages.same], carrier="thread", **settings)


def test_unknown_names_are_answered_with_those_that_exist(pipeline_of):
    with pytest.raises(UnknownName, match="'process'"):
        pipeline_of([stages.same], carrier="proces")
    pipeline = pipeline_of([stages.same], carrier="thread")
    with pytest.raises(UnknownName, match="'kill'"):
        pipeline.inject(0, "kil")


@pytest.mark.parametrize("carrier", ["process"])
def test_a_stage_that_cannot_be_loaded_says_why_and_leaves_nothing(pipeline_of, carrier):
    with pytest.raises(ModelFailed, match="this stage cannot be loaded"):
        pipeline_of([stages.same, stages.Unloadable()], carrier=carrier)
