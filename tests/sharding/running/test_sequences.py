"""Stages with state, and what a loss does to it: the Counter's sums tell whether each step was seen exactly once."""

import pytest
import running_stages as stages
import torch
from running_stages import until

from labkit.errors import DeadlineExceeded, EngineClosed, ModelFailed
from labkit.sharding.health import Health
from labkit.sharding.patience import Patience
from labkit.sharding.recovery import Budget
from labkit.sharding.state import Stateful


def counters(count):
    return [Stateful(stages.Counter()) for _ in range(count)]


def expected(values, count):
    """The outputs of `count` counters in a row."""
    for _ in range(count):
        values = torch.cumsum(values, 0)
    return values.tolist()


def run(sequence, values):
    return [sequence.submit(value).result(30).item() for value in values]


@pytest.mark.parametrize("carrier", ["process", "thread"])
def test_sequences_do_not_see_each_other(pipeline_of, carrier):
    pipeline = pipeline_of(counters(3), carrier=carrier)
    values = torch.randint(1, 9, (4, 6)).float()
    with pipeline.sequence() as one, pipeline.sequence() as two:
        outputs = [(one.submit(a), two.submit(b)) for a, b in zip(values[0], values[1], strict=True)]
        assert [first.result(30).item() for first, _ in outputs] == expected(values[0], 3)
        assert [second.result(30).item() for _, second in outputs] == expected(values[1], 3)
        assert one.position == 6


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("fault", ["kill", "hang"])
def test_state_is_rebuilt_after_a_loss_from_what_the_stage_was_given(pipeline_of, stage, fault):
    pipeline = pipeline_of(counters(3), patience=Patience(floor_s=0.3, first_call_s=1.0))
    values = torch.randint(1, 9, (10,)).float()
    with pipeline.sequence() as sequence:
        outputs = run(sequence, values[:5])
        pipeline.inject(stage, fault)
        outputs += run(sequence, values[5:])
    assert outputs == expected(values, 3)
    # Only the lost stage ran the prefix again.
    assert sum(step.outcome == "ok" for step in pipeline.records.steps()) <= 3 * 10 + 2


def test_state_is_rebuilt_from_the_start_when_the_model_is_cut_anew(pipeline_of):
    pipeline = pipeline_of(counters(4), boundaries=(0, 1, 3, 4), budget=Budget(restarts=0))
    values = torch.randint(1, 9, (9,)).float()
    with pipeline.sequence() as sequence:
        outputs = run(sequence, values[:3])
        pipeline.inject(1, "kill")
        outputs += run(sequence, values[3:6])
        assert until(lambda: len(pipeline.snapshot().stages) == 2, 10)
        outputs += run(sequence, values[6:])
    assert outputs == expected(values, 4)


def test_state_follows_when_a_boundary_moves_there_and_back(pipeline_of):
    pipeline = pipeline_of(counters(4), boundaries=(0, 2, 4), balancing=None)
    values = torch.randint(1, 9, (12,)).float()
    outputs = []
    with pipeline.sequence() as sequence:
        for number, cut in enumerate([(0, 2, 4), (0, 1, 4), (0, 3, 4), (0, 2, 4)]):
            with pipeline._conductor.entered():
                if cut != pipeline._crew.layout.boundaries:
                    pipeline._crew.move(cut)
            assert until(lambda cut=cut: pipeline.snapshot().boundaries == cut, 10)
            outputs += run(sequence, values[3 * number : 3 * number + 3])
    assert outputs == expected(values, 4)


def test_a_failed_step_leaves_the_state_as_it_was(pipeline_of):
    pipeline = pipeline_of([Stateful(stages.Counter()), stages.raise_on_negative, Stateful(stages.Counter())])
    with pipeline.sequence() as sequence:
        assert run(sequence, torch.tensor([1.0, 2.0])) == [1.0, 4.0]
        with pytest.raises(ModelFailed):
            sequence.submit(torch.tensor(-9.0)).result(30)
        assert sequence.position == 2
        assert run(sequence, torch.tensor([3.0])) == [10.0]


def test_a_step_whose_time_was_up_leaves_the_state_as_it_was(pipeline_of):
    pipeline = pipeline_of([Stateful(stages.Counter()), stages.SlowFirstCall(0.3), Stateful(stages.Counter())])
    with pipeline.sequence() as sequence:
        with pytest.raises(DeadlineExceeded):
            sequence.submit(torch.tensor(100.0), timeout_s=0.05).result(30)
        assert run(sequence, torch.tensor([1.0, 2.0])) == [1.0, 4.0]


def test_two_workers_of_a_stage_keep_sequences_apart_and_one_takes_over(pipeline_of):
    pipeline = pipeline_of(counters(2), replicas=[1, 2])
    values = torch.randint(1, 9, (6, 8)).float()
    sequences = [pipeline.sequence() for _ in range(6)]
    outputs = [run(sequence, row[:4]) for sequence, row in zip(sequences, values, strict=True)]
    pipeline.scale(1, 1).result(30)
    for row, sequence, output in zip(values, sequences, outputs, strict=True):
        assert output + run(sequence, row[4:]) == expected(row, 2)


def test_a_slowed_stage_with_state_still_sees_each_step_once(pipeline_of):
    pipeline = pipeline_of(counters(2), slowdowns=[3.0, 1.0])
    with pipeline.sequence() as sequence:
        assert run(sequence, torch.ones(4)) == expected(torch.ones(4), 2)


def test_plain_requests_and_sequences_share_a_pipeline(pipeline_of):
    pipeline = pipeline_of([stages.plus_one, Stateful(stages.Counter())], microbatch_rows=1)
    with pipeline.sequence() as sequence:
        assert run(sequence, torch.ones(2)) == [2.0, 4.0]
        assert pipeline.submit(torch.ones(3)).result(30).tolist() == [2.0, 2.0, 2.0]
        assert run(sequence, torch.ones(1)) == [6.0]


def test_an_ended_sequence_takes_no_more_steps(pipeline_of):
    pipeline = pipeline_of(counters(1), carrier="thread")
    sequence = pipeline.sequence()
    sequence.close()
    with pytest.raises(EngineClosed):
        sequence.submit(torch.ones(1))
    assert pipeline.snapshot().health is Health.RUNNING
