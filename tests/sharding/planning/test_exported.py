import copy
import pickle

import pytest
import torch
from torch import nn

from labkit.errors import SettingError
from labkit.sharding.chain import Chain
from labkit.sharding.footprint import value_bytes
from labkit.sharding.nested import leaves
from labkit.sharding.sample import resized


class Skipping(nn.Module):
    """Skips, an attention with a causal mask, tied weights, several outputs, plain ones among them."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.full((16,), 0.5), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        length = ids.shape[1]
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool, device=ids.device))
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2)).masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.drop(self.out(scores @ v)) * self.scale
        x += torch.arange(length, device=ids.device).unsqueeze(-1)
        return {"logits": self.head(x), "hidden": (x, None), "rows": ids.shape[0], "kind": 3}


def run(chain, value, cuts):
    with torch.no_grad():
        for first, last in zip((0, *cuts), (*cuts, len(chain)), strict=True):
            value = pickle.loads(pickle.dumps(chain.stage(first, last)))(value)
    return value


@pytest.fixture(scope="module")
def skipping():
    torch.manual_seed(0)
    model = Skipping().train()
    return model, Chain.of(model, torch.randint(0, 30, (1, 6)))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_every_allowed_cut_gives_the_model_bit_for_bit(skipping, rows):
    model, chain = skipping
    ids = torch.randint(0, 30, (rows, 6))
    with torch.no_grad():
        wanted = copy.deepcopy(model).eval()(ids)
    for cuts in [*((cut,) for cut in range(1, len(chain))), tuple(range(1, len(chain)))]:
        if all(chain.cut_allowed(cut) for cut in cuts):
            found = run(chain, ids, cuts)
            assert torch.equal(found["logits"], wanted["logits"])
            assert torch.equal(found["hidden"][0], wanted["hidden"][0])
            assert (found["hidden"][1], found["rows"], found["kind"]) == (None, rows, 3)


def test_what_is_carried_over_a_cut_is_named_and_costs_its_bytes(skipping):
    _, chain = skipping
    cut = chain.names.index("out")
    assert len(chain.carried[cut]) >= 2  # the attention's result, and the embedding for the skip connection
    edge = chain.stage(0, cut)(torch.randint(0, 30, (2, 6)))
    assert len(edge) == len(chain.carried[cut])
    assert value_bytes(edge) == 2 * (2 * 6 * 16 * 4)


def test_weights_and_masks_are_not_carried_but_stay_with_their_layer(skipping):
    _, chain = skipping
    for cut in range(1, len(chain)):
        edge = chain.taken(0, cut)(torch.randint(0, 30, (4, 6)))
        assert all(leaf.shape[0] == 4 for leaf in leaves(edge))


def test_the_users_module_is_not_changed():
    model = Skipping().train()
    model.head.eval()
    modes = [module.training for module in model.modules()]
    state = copy.deepcopy(model.state_dict())
    Chain.of(model, torch.randint(0, 30, (2, 6)))
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert model.head.weight is model.embed.weight
    assert not any(module._forward_hooks for module in model.modules())


def test_tied_weights_have_one_key_in_both_layers(skipping):
    _, chain = skipping
    first, last = chain.weights(0), chain.weights(len(chain) - 1)
    assert [first[key] for key in set(first) & set(last)] == [30 * 16 * 4]


def test_no_device_is_fixed_in_a_stage(skipping):
    _, chain = skipping
    stage = chain.stage(0, len(chain)).to("meta")
    out = stage(torch.zeros(2, 6, dtype=torch.int64, device="meta"))
    assert out["logits"].device.type == "meta"


def test_an_operation_in_place_behind_a_cut_refuses_it_with_the_reason():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            y = self.a(x)
            z = self.b(y)
            y.add_(1)
            return y + z

    model, x = Writes(), torch.randn(3, 4)
    chain = Chain.of(model, x)
    assert chain.names == ("a", "b")
    assert not chain.cut_allowed(1)
    assert "add_ behind it writes in place into" in chain.refusals[1]
    assert torch.equal(chain.stage(0, 2)(x), model(x))


def test_a_module_that_writes_into_its_own_buffer_is_refused():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls.add_(1)
            return self.linear(x) + self.calls

    model = Counts()
    with pytest.raises(SettingError, match="writes into its own weight or buffer"):
        Chain.of(model, torch.randn(2, 4))


def test_a_module_that_gives_random_answers_is_refused():
    class Random(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x) + torch.rand_like(x)

    with pytest.raises(SettingError, match="do not give the same output"):
        Chain.of(Random(), torch.randn(2, 4))


def test_a_module_that_branches_on_its_data_is_refused_with_the_way_out():
    class Branches(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(SettingError, match=r"chain\(\)"):
        Chain.of(Branches(), torch.randn(2, 4))


def test_a_module_that_is_bound_to_its_number_of_rows_says_so():
    class Bound(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x) + torch.ones(x.view(3, 4).shape)

    chain = Chain.of(Bound(), torch.randn(3, 4))
    stage = chain.stage(0, len(chain))
    assert stage(torch.randn(3, 4)).shape == (3, 4)
    with pytest.raises(SettingError, match="2 rows, and this model was traced for 3 only"):
        stage(torch.randn(2, 4))


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, shift):
        return self.two(torch.relu(self.one(x)) + shift), x


@pytest.mark.parametrize("named", [False, True])
def test_several_arguments_are_one_value(named):
    model, x, shift = Several(), torch.randn(2, 4), torch.randn(2, 4)
    value = {"x": x, "shift": shift} if named else (x, shift)
    chain = Chain.of(model, value)
    found = run(chain, dict(reversed(value.items())) if named else value, (1,))
    with torch.no_grad():
        assert all(torch.equal(*pair) for pair in zip(found, model(x, shift), strict=True))


def test_an_input_that_is_built_otherwise_is_refused():
    chain = Chain.of(Several(), (torch.randn(2, 4), torch.randn(2, 4)))
    with pytest.raises(SettingError, match="built differently"):
        chain.stage(0, 1)(torch.randn(2, 4))


def test_weights_may_be_cast_and_stages_keep_working(skipping):
    _, chain = skipping
    stage = chain.stage(0, len(chain)).to(torch.bfloat16)
    assert stage(torch.randint(0, 30, (2, 6)))["logits"].dtype == torch.bfloat16


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_rows_of_an_example_are_repeated_or_dropped(rows):
    found = resized({"x": torch.arange(3), "none": None, "one": torch.tensor(5)}, rows)
    assert found["x"].tolist() == [row % 3 for row in range(rows)]
    assert found["one"].item() == 5
