"""Faults of other systems, each as a test named after it; the numbers are those of the reports."""

import numpy as np
import pytest
import torch
from torch import nn

from labkit.errors import SettingError
from labkit.sharding.baselines import equal_count, parameter_balanced
from labkit.sharding.chain import Chain
from labkit.sharding.partition import partition
from labkit.sharding.problem import Problem


def test_accelerate_4093_padding_adds_no_rows():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.second(torch.relu(self.first(x))) + x[:, :3]

    net = Net().eval()
    chain = Chain.of(net, torch.randn(2, 4))
    stages = [chain.stage(0, 1), chain.stage(1, 2)]
    for rows in range(1, 18):
        x = torch.randn(rows, 4)
        for count in (2, 3, 4):
            parts = [stages[1](stages[0](part)) for part in x.tensor_split(count) if len(part)]
            assert torch.cat(parts).shape == (rows, 3)
            assert torch.equal(stages[1](stages[0](x)), net(x))


def test_accelerate_1427_an_operation_that_joins_two_shards():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin1, self.lin2 = nn.Linear(4, 6), nn.Linear(4, 6)

        def forward(self, x):
            y = self.lin1(x)
            z = self.lin2(y[:, :4])
            return torch.add(y, z)

    net, x = Net(), torch.randn(5, 4)
    chain = Chain.of(net, x)
    assert chain.names == ("lin1", "lin2")
    assert torch.equal(chain.stage(1, 2)(chain.stage(0, 1)(x)), net(x))
    assert len(chain.carried[1]) >= 1


@pytest.mark.parametrize("cut", [partition, equal_count, parameter_balanced])
def test_mlx_lm_1688_every_layer_is_placed_exactly_once(cut):
    for layers in range(1, 21):
        for stages in range(1, 6):
            problem = Problem(np.ones((stages, layers)), param_bytes=np.ones(layers))
            plan = cut(problem)
            assert [layer for stage in range(len(plan)) for layer in plan.layers_of(stage)] == list(range(layers))
            assert max(map(len, map(plan.layers_of, range(len(plan))))) == -(-layers // stages)


def test_vllm_6920_a_heavy_head_is_balanced():
    problem = Problem(np.tile([*[1.0] * 24, 2.5], (4, 1)))
    assert equal_count(problem).bottleneck_s == 7.5
    assert partition(problem).bottleneck_s == 7.0


@pytest.mark.parametrize("scale", [1.0, 0.75])
def test_exo_641_layers_follow_uneven_memory(scale):
    caps = np.array([192, 128, 64]) * scale
    plan = partition(Problem(np.ones((3, 32)), param_bytes=[8] * 32, memory_bytes=caps), "memory")
    assert plan.boundaries == (0, 16, 27, 32)
    assert all(memory <= cap for memory, cap in zip(plan.memory_bytes, caps, strict=True))


def test_exo_641_memory_that_cannot_do_is_explained():
    caps = np.array([192, 128, 64]) / 2
    problem = Problem(np.ones((3, 32)), param_bytes=[8] * 32, memory_bytes=caps, devices=("big", "middle", "small"))
    with pytest.raises(SettingError) as raised:
        partition(problem, "memory")
    assert "hold the first 24 of 32 layers" in str(raised.value)
    assert "need 256 bytes and the devices have 192 bytes" in str(raised.value)
    assert "'big' with 128 bytes (32 bytes more)" in str(raised.value)


def test_pipeedge_two_slow_and_two_fast_hosts_each_count_with_their_own_speed():
    problem = Problem(np.array([[1.0], [1.0], [0.25], [0.25]]) * np.ones(20))
    plan = partition(problem)
    assert plan.boundaries == (0, 2, 4, 12, 20)
    assert plan.bottleneck_s == 2.0
    assert partition(problem, order="any").bottleneck_s == 2.0


def test_pipeedge_one_slow_and_one_fast_host():
    assert partition(Problem(np.array([[1.0], [0.25]]) * np.ones(20))).boundaries == (0, 4, 20)


def test_embedding_and_head_on_slow_and_fast_devices_reach_the_known_optimum():
    layers = np.array([0.05, *[1.0] * 24, 2.5])
    slow = np.array([1, 1, 0.25, 0.25])
    problem = Problem(slow[:, None] * layers)
    assert equal_count(problem).bottleneck_s == pytest.approx(7.0)
    assert partition(problem).bottleneck_s == pytest.approx(2.875)
    assert partition(problem, order="any").bottleneck_s == pytest.approx(2.75)
    assert layers.sum() / (1 / slow).sum() == pytest.approx(2.655)
