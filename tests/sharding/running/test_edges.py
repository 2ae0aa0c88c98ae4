"""Every edge carries whatever a stage returns; each case is one that torch.distributed.pipelining fails on."""

import pytest
import running_stages as stages
import torch
from torch import nn

from labkit.errors import ModelFailed, SettingError

CARRIERS = ["process", "thread"]


@pytest.fixture(params=CARRIERS)
def run(request, pipeline_of):
    """Run inputs through stages, one request each."""

    def through(parts, *inputs, **settings):
        pipeline = pipeline_of(parts, carrier=request.param, **settings)
        futures = [pipeline.submit(one) for one in inputs]
        outputs = [future.result(30) for future in futures]
        return outputs if len(outputs) > 1 else outputs[0]

    return through


def test_seven_rows_in_four_microbatches_give_seven_rows(run):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    rows = torch.randn(7, 6)
    output = run(list(model), rows, microbatch_rows=2)
    assert output.shape == (7, 3)
    torch.testing.assert_close(output, model(rows).detach())


@pytest.mark.parametrize("rows", [0, 1, 3, 8])
def test_fewer_rows_than_microbatches_and_none_at_all(run, rows):
    values = torch.randn(rows, 5)
    assert torch.equal(run([stages.plus_one, stages.times_two], values, microbatch_rows=3), (values + 1) * 2)


def test_a_second_request_may_be_longer_or_shorter(run):
    inputs = [torch.randn(2, length, 4) for length in (5, 7, 5, 3, 900)]
    outputs = run([stages.plus_one, stages.times_two], *inputs)
    for value, output in zip(inputs, outputs, strict=True):
        assert torch.equal(output, (value + 1) * 2)


def test_outputs_that_are_not_contiguous(run):
    values = torch.randn(6, 8)
    expected = stages.sum_views(stages.non_contiguous(values))
    torch.testing.assert_close(run([stages.non_contiguous, stages.sum_views], values, microbatch_rows=4), expected)


def test_dicts_none_plain_values_and_several_outputs(run):
    values = torch.randn(5, 3)
    expected = stages.one_input(stages.many_outputs(values))
    assert torch.equal(run([stages.many_outputs, stages.one_input], values, microbatch_rows=2), expected)


def test_a_final_output_of_dicts_and_none_is_joined(run):
    output = run([stages.plus_one, stages.many_outputs], torch.zeros(5, 3), microbatch_rows=2)
    assert output["double"].shape == (5, 3)
    assert output["nothing"] is None
    assert output["pair"][1][1:] == [3, "text"]


def test_dataclasses_and_numpy(run):
    values = torch.randn(4, 3)
    parts = [stages.boxed, stages.unboxed, stages.to_numpy, stages.from_numpy]
    assert torch.equal(run(parts, values, microbatch_rows=3), values * 2)


def test_a_bfloat16_edge_into_a_float32_stage(run):
    values = torch.randn(4, 3)
    output = run([stages.bfloat16_out, nn.Linear(3, 2)], values, dtypes=[None, "float32"])
    assert output.dtype == torch.float32


def test_precision_per_stage_is_cast_at_the_edges(run):
    first, second, third = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
    values = torch.randn(4, 8)
    output = run([first, second, third], values, dtypes=["bfloat16", None, "float16"])
    with torch.inference_mode():
        half = nn.functional.linear(values.bfloat16(), first.weight.bfloat16(), first.bias.bfloat16())
        middle = second(half.float())
        expected = nn.functional.linear(middle.half(), third.weight.half(), third.bias.half())
    assert output.dtype == torch.float16
    torch.testing.assert_close(output, expected)
    assert first.weight.dtype == torch.float32


def test_a_value_larger_than_every_slot_makes_the_ring_grow(run):
    values = torch.randn(4, 100)
    output = run([stages.repeat_rows_size, stages.plus_one], values, microbatch_rows=1)
    assert torch.equal(output, values.repeat(1, 5000) + 1)


def test_a_stage_that_writes_to_its_input_does_not_change_the_callers_rows(pipeline_of):
    values = torch.ones(4, 2)
    output = pipeline_of([stages.write_to_input, stages.write_to_input]).submit(values).result(30)
    assert torch.equal(values, torch.ones(4, 2))
    assert torch.equal(output, torch.full((4, 2), 7.0))


def test_outputs_are_the_callers_to_keep_and_to_change(run):
    first, second = run([stages.plus_one, nn.Identity()], torch.zeros(2, 2), torch.full((2, 2), 5.0))
    first.add_(1)
    assert torch.equal(first, torch.full((2, 2), 2.0))
    assert torch.equal(second, torch.full((2, 2), 6.0))


def test_a_torch_operation_joins_the_outputs_of_two_shards(run):
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    values = torch.randn(5, 4)
    output = run([stages.Keep(one), stages.Keep(two), stages.join_lin], values, microbatch_rows=2)
    torch.testing.assert_close(output, (one(values) + two(one(values))).detach())


def test_rows_that_cannot_be_joined_fail_that_request_alone(pipeline_of):
    pipeline = pipeline_of([stages.counts_rows], carrier="thread", microbatch_rows=2)
    with pytest.raises(ModelFailed, match="cannot be joined"):
        pipeline.submit(torch.ones(3, 1)).result(30)
    assert pipeline.submit(torch.ones(4, 1)).result(30) == 2


def test_an_output_that_cannot_be_sent_fails_that_request(pipeline_of):
    pipeline = pipeline_of([stages.unpicklable])
    with pytest.raises(ModelFailed, match="stage 0"):
        pipeline.submit(torch.ones(1)).result(30)


def test_a_payload_whose_tensors_disagree_is_refused_at_once(pipeline_of):
    pipeline = pipeline_of([stages.same], carrier="thread")
    with pytest.raises(SettingError, match="leading axes"):
        pipeline.submit((torch.ones(3), torch.ones(4)))


def test_the_users_module_is_never_changed(run):
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    output = run([module], torch.randn(4, 3), dtypes=["bfloat16"])
    assert output.dtype == torch.bfloat16
    assert module.training
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.dtype == before[name].dtype


def test_tied_weights_are_one_copy_per_worker(pipeline_of):
    table = nn.Embedding(500, 64)
    head = nn.Linear(64, 500, bias=False)
    head.weight = table.weight
    pipeline = pipeline_of([table, head], boundaries=(0, 2))
    ids = torch.arange(5)
    torch.testing.assert_close(pipeline.submit(ids).result(30), head(table(ids)).detach())
    assert pipeline._conductor._carrier._packed.segment.size_bytes < 1.2 * table.weight.nbytes


@pytest.mark.parametrize("layers", range(1, 11))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_layer_runs_exactly_once_however_they_are_cut(pipeline_of, layers, count):
    if layers < count:
        pytest.skip("a stage would be empty")
    cuts = [round(layers * stage / count) for stage in range(count + 1)]
    parts = [stages.Scale(number + 2) for number in range(layers)]
    output = pipeline_of(parts, carrier="thread", boundaries=cuts).submit(torch.ones(1, dtype=torch.float32)).result(30)
    expected = torch.ones(1)
    for part in parts:
        expected = expected * part.factor.detach()
    assert torch.equal(output, expected)


def test_a_stage_from_a_notebook_is_sent_along(pipeline_of):
    pytest.importorskip("cloudpickle")

    def local(value):
        return value + 41

    local.__module__ = "__main__"
    local.__qualname__ = "local"
    assert pipeline_of([local]).submit(torch.ones(1)).result(30).item() == 42
