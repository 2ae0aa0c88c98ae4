import torch
from torch import nn

from labkit.sharding.pieces import Pieces, cut
from labkit.sharding.segment import Segment
from labkit.sharding.weights import Weights, load_layer


def packed(layers):
    return Weights(layers, [None] * len(layers), lambda size_bytes: Segment.create(0, size_bytes))


def loaded(weights, *layers):
    """Load some layers from nothing but their pieces; return them and the bytes that were brought."""
    lifted = [(piece, piece.lifted(weights.segment.memory)) for piece in cut(weights)]
    pieces, known, brought = Pieces(weights.segment.size_bytes, lifted), {}, 0
    built = []
    for layer in layers:
        for piece, data in pieces.wanted(layer):
            piece.lay(pieces.memory, data)
            brought += data.nbytes
        built.append(load_layer(pieces.memory, weights.refs[layer], torch.device("cpu"), known))
    return built, brought


def test_a_layer_is_rebuilt_from_its_own_pieces_alone():
    layers = [nn.Linear(64, 64), nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), nn.Linear(64, 64)]
    (built,), brought = loaded(packed(layers), 1)
    rows = torch.randn(5, 8)
    assert torch.equal(built(rows), layers[1].eval()(rows))
    assert brought < layers[0].weight.nbytes


def test_tied_weights_are_brought_once_and_are_one_tensor():
    table, head = nn.Embedding(200, 64), nn.Linear(64, 200, bias=False)
    head.weight = table.weight
    (first, second), brought = loaded(packed([table, nn.ReLU(), head]), 0, 2)
    assert first.weight is second.weight
    assert torch.equal(first.weight, table.weight)
    assert brought < 1.5 * table.weight.nbytes


def test_a_worker_may_write_to_its_weights():
    layer = nn.Linear(4, 4)
    (built,), _ = loaded(packed([layer]), 0)
    before = layer.weight.detach().clone()
    built.weight.zero_()
    assert torch.equal(layer.weight, before)
