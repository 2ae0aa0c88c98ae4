"""The photo network against PyPI efficientnet-lite-pytorch, which shares no code with it."""

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet

from labkit.models import load
from labkit.models.efficientnet import from_checkpoint
from labkit.models.fetch import fetch


@pytest.fixture(scope="module")
def checkpoint():
    path = fetch("efficientnet-lite0") / "efficientnet-lite0.pth"
    return torch.load(path, weights_only=True)


def reference(checkpoint, side):
    network = EfficientNet.from_name("efficientnet-lite0", image_size=side)
    network.load_state_dict(checkpoint)
    return network.eval()


def test_the_logits_of_real_photos_are_those_of_the_reference(checkpoint, photo_model, photo_workload):
    rows = torch.stack([photo_model.prepare(payload) for payload in photo_workload.payloads[:6]])
    with torch.inference_mode():
        expected = reference(checkpoint, 224)(rows)
        found = photo_model.module(rows)
    assert expected.std() > 0.5
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("side", [193, 240])
def test_padding_is_right_for_odd_and_even_sizes(checkpoint, side):
    rows = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(
            from_checkpoint(checkpoint)(rows), reference(checkpoint, side)(rows), rtol=0, atol=1e-4
        )


def test_a_batch_of_n_equals_n_singles(photo_model, photo_workload):
    rows = torch.stack([photo_model.prepare(payload) for payload in photo_workload.payloads[:4]])
    with torch.inference_mode():
        together = photo_model.module(rows)
        alone = torch.cat([photo_model.module(row.unsqueeze(0)) for row in rows])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-4)


def test_bfloat16_weights_take_float32_rows_and_give_nearby_float32_logits(photo_model, photo_workload):
    low = load("efficientnet-lite0", dtype="bfloat16")
    row = photo_model.prepare(photo_workload.payload(1)).unsqueeze(0)
    with torch.inference_mode():
        exact, rough = photo_model.module(row), low.module(row)
    assert {parameter.dtype for parameter in low.module.parameters()} == {torch.bfloat16}
    assert rough.dtype == torch.float32
    assert rough.argmax() == exact.argmax()
    assert 0 < (rough - exact).abs().max() < 1.0


def test_the_network_is_ready_for_inference(photo_model):
    assert not photo_model.module.training
    assert not any(parameter.requires_grad for parameter in photo_model.module.parameters())
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in photo_model.module.modules())


def test_a_checkpoint_that_lacks_a_tensor_is_refused(checkpoint):
    partial = {name: tensor for name, tensor in checkpoint.items() if name != "_fc.bias"}
    with pytest.raises(RuntimeError, match=r"classifier\.bias"):
        from_checkpoint(partial)
