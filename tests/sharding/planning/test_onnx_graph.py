import pickle
import sys

import numpy as np
import pytest
import torch

from labkit.errors import SettingError, Unavailable
from labkit.sharding.onnx_graph import OnnxChain

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT


def model(*, tied=False):
    """Three products with a skip connection over the second, and a weight that is transposed first."""
    rng = np.random.default_rng(0)
    weights = {"w0": (8, 16), "w1": (16, 16), "w2t": (3, 16), "bias": (16,)}
    node = helper.make_node
    nodes = [
        node("Transpose", ["w2t"], ["w2"], name="turn"),
        node("MatMul", ["x", "w0"], ["m0"], name="first"),
        node("Add", ["m0", "bias"], ["a0"]),
        node("Relu", ["a0"], ["r0"]),
        node("MatMul", ["r0", "w1"], ["m1"], name="second"),
        node("Add", ["m1", "r0"], ["s"]),
        *([node("MatMul", ["s", "w1"], ["t"], name="again")] if tied else [node("Tanh", ["s"], ["t"])]),
        node("MatMul", ["t", "w2"], ["y"], name="last"),
    ]
    held = [onnx.numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in weights.items()]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 3])],
        initializer=held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def reference(proto, x):
    return torch.from_numpy(onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x.numpy()})[0])


@pytest.mark.parametrize("rows", [1, 5])
def test_every_cut_agrees_with_the_onnx_reference(rows):
    import onnx.reference  # noqa: F401

    chain, x = OnnxChain.of(model()), torch.randn(rows, 8)
    assert chain.names == ("first", "second", "last")
    for cut in range(1, len(chain)):
        first, second = chain.stage(0, cut), chain.stage(cut, len(chain))
        first(x)  # opens its session, which must not hinder pickling
        found = second(pickle.loads(pickle.dumps(first))(x))
        torch.testing.assert_close(found, reference(model(), x), rtol=1e-5, atol=1e-5)


def test_a_skip_connection_is_carried_and_a_weight_is_not():
    chain = OnnxChain.of(model())
    assert chain.carried == (("x",), ("r0",), ("t",), ("y",))
    assert sum(chain.weights(2).values()) == 3 * 16 * 4


def test_a_value_that_a_stage_does_not_touch_passes_through():
    proto = model()
    proto.graph.output.append(helper.make_tensor_value_info("r0", FLOAT, ["n", 16]))
    chain, x = OnnxChain.of(proto), torch.randn(2, 8)
    out = chain.stage(2, 3)(chain.stage(1, 2)(chain.stage(0, 1)(x)))
    assert list(out) == ["y", "r0"]
    torch.testing.assert_close(out["y"], reference(model(), x), rtol=1e-5, atol=1e-5)


def test_a_weight_that_two_layers_use_has_one_key():
    chain = OnnxChain.of(model(tied=True))
    assert set(chain.weights(1)) & set(chain.weights(2)) == {"w1"}


def test_it_is_read_from_a_file(tmp_path):
    onnx.save(model(), tmp_path / "net.onnx")
    assert len(OnnxChain.of(tmp_path / "net.onnx")) == 3


def test_a_model_with_a_branch_is_refused():
    branch = helper.make_graph([], "b", [], [helper.make_tensor_value_info("x", FLOAT, ["n", 8])])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch)
    proto = model()
    proto.graph.node.append(node)
    with pytest.raises(SettingError, match="control flow"):
        OnnxChain.of(proto)


def test_without_onnx_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(Unavailable, match=r"labkit\[onnx\]"):
        OnnxChain.of("model.onnx")
