"""From a model to a plan to a pipeline."""

import pytest
import running_stages as stages
import torch
from running_stages import until
from torch import nn

from labkit.sharding import Budget, Chain, Health, Pipeline, Problem, Survivor, partition
from labkit.sharding.replan import replan_with


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(6)))


@pytest.fixture
def planned():
    opened = []

    def make(*arguments, **settings):
        opened.append(Pipeline.plan(*arguments, **settings))
        return opened[-1]

    yield make
    for pipeline in opened:
        pipeline.close(drain=False)


def test_a_plan_is_run_as_it_says(model, planned):
    plan = partition(Problem([[1, 1, 1, 1, 1, 5]] * 3))
    pipeline = planned(Chain.of(model), plan, microbatch_rows=2, carrier="thread")
    rows = torch.randn(5, 8)
    assert pipeline.snapshot().boundaries == plan.boundaries
    torch.testing.assert_close(pipeline.submit(rows).result(30), model(rows).detach())


def test_a_traced_model_with_a_skip_connection_is_run_in_stages(planned):
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, rows):
            return rows + self.second(torch.relu(self.first(rows)))

    model, rows = Skip().eval(), torch.randn(6, 4)
    chain = Chain.of(model, rows)
    plan = partition(Problem([[1] * len(chain)] * 2, refusals=chain.refusals))
    pipeline = planned(chain, plan, microbatch_rows=4)
    torch.testing.assert_close(pipeline.submit(rows).result(30), model(rows).detach())


def test_layers_that_may_not_be_parted_stay_together(planned):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True))
    chain = Chain.of(model)
    plan = partition(Problem([[1] * 4] * 2, refusals=chain.refusals))
    pipeline = planned(chain, plan, carrier="thread")
    rows = torch.randn(3, 4)
    assert len(pipeline._conductor._carrier.refs) == 2
    torch.testing.assert_close(pipeline.submit(rows).result(30), model(rows).detach())


def test_after_a_loss_the_survivors_memory_is_kept(model, planned):
    problem = Problem([[1] * 6] * 3, param_bytes=[10] * 6, memory_bytes=[20, 30, 50])
    plan = partition(problem)
    pipeline = planned(Chain.of(model), plan, problem=problem, budget=Budget(restarts=0))
    pipeline.inject(0, "kill")
    rows = torch.randn(3, 8)
    torch.testing.assert_close(pipeline.submit(rows).result(30), model(rows).detach())
    assert until(lambda: len(pipeline.snapshot().stages) == 2, 10)
    assert pipeline.snapshot().boundaries in [(0, 1, 6), (0, 2, 6), (0, 3, 6)]
    pipeline.inject(1, "kill")
    assert until(lambda: pipeline.snapshot().health is Health.FAILED, 10)
    assert "60 bytes" in pipeline.snapshot().reason


def test_a_survivor_that_is_better_left_out_gets_no_layers():
    problem = Problem([[1] * 6, [1] * 6, [100] * 6])
    plan = partition(Problem([[1] * 6] * 3))
    replan = replan_with(problem, plan, range(7))
    survivors = (Survivor(0, (0,), "cpu", 1.0), Survivor(2, (2,), "cpu", 1.0))
    assert tuple(replan(survivors)) == (0, 6, 6)


def test_a_slowed_survivor_gets_fewer_layers():
    problem = Problem([[1] * 6] * 3)
    plan = partition(problem)
    replan = replan_with(problem, plan, range(7))
    assert tuple(replan((Survivor(0, (0,), "cpu", 2.0), Survivor(1, (1,), "cpu", 1.0)))) == (0, 2, 6)


def test_a_survivor_without_layers_is_let_go(pipeline_of):
    layers = [stages.Scale(number + 1) for number in range(4)]
    pipeline = pipeline_of(
        layers, boundaries=(0, 1, 2, 4), budget=Budget(restarts=0), replan=lambda survivors: (0, 4, 4)
    )
    pipeline.inject(1, "kill")
    assert pipeline.submit(torch.ones(2)).result(30).tolist() == [24.0, 24.0]
    assert until(lambda: len(pipeline._crew.hands) == 1, 10)


def test_an_onnx_model_runs_in_stages(model, planned, tmp_path):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from labkit.sharding import OnnxChain

    helper = onnx.helper
    names = [f"value{number}" for number in range(4)]
    weights = [onnx.numpy_helper.from_array(torch.randn(4, 4).numpy(), f"weight{number}") for number in range(3)]
    nodes = [helper.make_node("MatMul", [names[n], f"weight{n}"], [names[n + 1]]) for n in range(3)]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", 4]) for name in (names[0], names[3])]
    graph = helper.make_graph(nodes, "three", ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    chain = OnnxChain.of(made)
    pipeline = planned(chain, partition(Problem([[1] * len(chain)] * 2)), microbatch_rows=2)
    rows = torch.randn(5, 4)
    expected = rows
    for weight in weights:
        expected = expected @ torch.from_numpy(onnx.numpy_helper.to_array(weight).copy())
    torch.testing.assert_close(pipeline.submit(rows).result(30), expected)
