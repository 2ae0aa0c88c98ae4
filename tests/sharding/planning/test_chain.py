import copy
import pickle

import pytest
import torch
from torch import nn

from labkit.errors import SettingError
from labkit.models.efficientnet import EfficientNetLite0
from labkit.models.encoder import Encoder, EncoderShape
from labkit.sharding.chain import Chain


def scale(value):
    return value * 2


class Declared(nn.Module):
    """Two blocks that pass a pair on, and a plain function."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Pair(), Pair()])

    def forward(self, x):
        value = (x, None)
        for block in self.blocks:
            value = block(value)
        return scale(value[0])

    def chain(self):
        return [("enter", enter), ("block0", self.blocks[0]), ("block1", self.blocks[1]), ("leave", leave)]


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, value):
        return self.linear(value[0]), value[1]


def enter(x):
    return x, None


def leave(value):
    return scale(value[0])


def tiny_encoder():
    torch.manual_seed(1)
    return Encoder(EncoderShape(vocabulary=50, width=32, layers=3, heads=4, hidden=64, positions=64)).eval()


MODELS = [
    (lambda: nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.GELU(), nn.Linear(8, 8)), nn.Tanh()), (3, 4)),
    (Declared, (3, 4)),
    (EfficientNetLite0, (2, 3, 64, 64)),
]


@pytest.mark.parametrize(("build", "shape"), MODELS)
def test_all_stages_in_a_row_give_the_model_bit_for_bit(build, shape):
    model, x = build().eval(), torch.randn(shape)
    chain = Chain.of(model)
    with torch.inference_mode():
        wanted = model(x)
        for cut in range(1, len(chain)):
            if chain.cut_allowed(cut):
                first, second = chain.stage(0, cut), chain.stage(cut, len(chain))
                assert torch.equal(pickle.loads(pickle.dumps(second))(first(x)), wanted)


@pytest.mark.parametrize("length", [16, 33])
def test_the_encoder_is_a_chain_and_carries_its_mask(length):
    model, ids = tiny_encoder(), torch.randint(1, 50, (3, length))
    ids[1, 5:] = 0
    ids[2] = 0
    chain = Chain.of(model)
    assert chain.names == ("embedding", "layer0", "layer1", "layer2", "pool")
    with torch.inference_mode():
        x, mask = chain.stage(0, 2)(ids)
        assert mask.dtype == torch.bool
        assert torch.equal(chain.stage(2, 5)((x, mask)), model(ids))


def test_the_encoder_in_a_chain_checks_its_input_too():
    with pytest.raises(SettingError, match="at most 64 tokens"):
        Chain.of(tiny_encoder()).stage(0, 1)(torch.zeros(1, 65, dtype=torch.int64))


def test_a_stage_is_independent_of_the_users_module():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)).train()
    before = copy.deepcopy(model.state_dict())
    stage = Chain.of(model).stage(0, 3)
    with torch.no_grad():
        for parameter in stage.parameters():
            parameter.zero_()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not stage.training


def test_tied_weights_are_one_copy_in_each_stage():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    chain = Chain.of(model)
    whole = chain.stage(0, 3)
    assert whole.layers[0].weight is whole.layers[2].weight
    assert sum(parameter.nbytes for parameter in whole.parameters()) == (16 + 4 + 4) * 4
    assert set(chain.weights(0)) & set(chain.weights(2))
    assert chain.stage(0, 1).layers[0].weight is not chain.stage(2, 3).layers[0].weight


def test_a_cut_before_a_layer_that_works_in_place_is_refused_with_the_reason():
    chain = Chain.of(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)))
    assert [chain.cut_allowed(cut) for cut in range(5)] == [True, False, True, True, False]
    with pytest.raises(SettingError, match=r"'1' \(ReLU\) works in place"):
        chain.stage(0, 1)


def test_a_sequential_with_a_forward_of_its_own_is_not_taken_apart():
    class Doubled(nn.Sequential):
        def forward(self, x):
            return super().forward(x) * 2

    model, x = Doubled(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(2, 4)
    with pytest.raises(SettingError, match="Give an example"):
        Chain.of(model)
    chain = Chain.of(model, x)
    assert torch.equal(chain.stage(1, 2)(chain.stage(0, 1)(x)), model(x))


def test_a_nested_sequential_with_hooks_stays_whole():
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    inner.register_forward_hook(lambda module, args, out: out + 1)
    assert Chain.of(nn.Sequential(inner, nn.Tanh())).names == ("0", "1")


def test_a_layer_that_is_a_method_of_the_whole_model_is_refused():
    class Greedy(Declared):
        def chain(self):
            return [("all", self.forward)]

    with pytest.raises(SettingError, match="would take all of that along"):
        Chain.of(Greedy())


def test_two_layers_of_one_name_are_refused():
    class Twice(Declared):
        def chain(self):
            return [("a", self.blocks[0]), ("a", self.blocks[1])]

    with pytest.raises(SettingError, match="its own name"):
        Chain.of(Twice())


@pytest.mark.parametrize(("first", "last"), [(0, 0), (2, 1), (0, 9), (-1, 2)])
def test_an_empty_or_impossible_stage_is_refused(first, last):
    with pytest.raises(SettingError, match="no stage"):
        Chain.of(nn.Sequential(nn.Linear(4, 4), nn.Tanh())).stage(first, last)


def test_a_layer_that_cannot_be_copied_is_refused_with_the_way_out():
    import threading

    layer = nn.Linear(4, 4)
    layer.lock = threading.Lock()
    with pytest.raises(SettingError, match="hold no locks"):
        Chain.of(nn.Sequential(layer, nn.Tanh())).stage(0, 1)


def test_the_fingerprint_tells_models_apart_but_not_their_values():
    one, other = (Chain.of(nn.Sequential(nn.Linear(4, 4), nn.Tanh())) for _ in range(2))
    assert one.fingerprint() == other.fingerprint()
    assert one.fingerprint() != Chain.of(nn.Sequential(nn.Linear(4, 5), nn.Tanh())).fingerprint()
    assert one.fingerprint() != Chain.of(nn.Sequential(nn.Linear(4, 4), nn.GELU())).fingerprint()
