from weakref import WeakValueDictionary

import pytest
import running_stages as stages
import torch
from torch import nn

from labkit.errors import SettingError
from labkit.sharding.ring import Ring
from labkit.sharding.state import Stateful
from labkit.sharding.weights import Weights, load_layer


@pytest.fixture
def ring():
    ring = Ring()
    yield ring
    ring.close()


def loaded(weights, cache=None):
    cache = WeakValueDictionary() if cache is None else cache
    return [load_layer(weights.segment.memory, ref, torch.device("cpu"), cache) for ref in weights.refs]


def test_layers_come_back_as_they_were_in_eval_mode(ring):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout()).train()
    weights = Weights(list(model), [None] * 3, ring.new_segment)
    images = torch.randn(2, 3, 8, 8)
    value = images
    for layer in loaded(weights):
        assert not layer.training
        value = layer(value)
    torch.testing.assert_close(value, model.eval()(images))


def test_a_copy_on_the_worker_shares_the_segments_bytes(ring):
    weights = Weights([nn.Linear(100, 100)], [None], ring.new_segment)
    (first,), (second,) = loaded(weights), loaded(weights)
    assert first.weight.data_ptr() == second.weight.data_ptr()


def test_a_weight_of_two_layers_is_stored_once_and_is_one_tensor(ring):
    first, second = nn.Linear(50, 50, bias=False), nn.Linear(50, 50, bias=False)
    second.weight = first.weight
    weights = Weights([first, second], [None, None], ring.new_segment)
    assert weights.segment.size_bytes < 1.6 * first.weight.nbytes
    one, two = loaded(weights)
    assert one.weight is two.weight


def test_a_data_type_is_given_to_parameters_and_buffers_and_to_nothing_else(ring):
    layer = nn.BatchNorm1d(4)
    layer.table = torch.ones(3)
    (copy,) = loaded(Weights([layer], [torch.bfloat16], ring.new_segment))
    assert {copy.weight.dtype, copy.running_mean.dtype} == {torch.bfloat16}
    assert copy.num_batches_tracked.dtype == torch.int64
    assert layer.weight.dtype == torch.float32


def test_a_stage_with_state_is_carried_with_its_module(ring):
    (copy,) = loaded(Weights([Stateful(stages.Attend(4).train())], [None], ring.new_segment))
    assert isinstance(copy, Stateful)
    assert not copy.step.training


def test_a_stage_that_cannot_be_pickled_is_named(ring):
    class Locked:
        def __init__(self):
            import threading

            self.lock = threading.Lock()

        def __call__(self, value):
            return value

    with pytest.raises(SettingError, match=r"stage 1 \(Locked\) cannot be sent"):
        Weights([stages.same, Locked()], [None, None], ring.new_segment)


def test_the_bytes_of_each_layer_are_known(ring):
    weights = Weights([nn.Linear(10, 10), stages.same], [torch.float16, None], ring.new_segment)
    assert [ref.weights_bytes for ref in weights.refs] == [220, 0]
