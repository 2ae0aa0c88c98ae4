"""Reading a model's output."""

import pytest
import torch

from labkit.errors import SettingError
from labkit.models.answer import ReadLabels, imagenet_labels


def test_probabilities_are_the_softmax_of_the_logits():
    answer = ReadLabels(("a", "b", "c"), count=3)(torch.tensor([1.0, 3.0, 2.0], dtype=torch.bfloat16))
    assert [guess.label for guess in answer.guesses] == ["b", "c", "a"]
    assert [guess.probability for guess in answer.guesses] == pytest.approx([0.66524, 0.24473, 0.09003], abs=1e-5)


def test_the_labels_of_imagenet_are_a_thousand_in_the_order_of_the_logits():
    labels = imagenet_labels()
    assert len(labels) == 1000
    known = {
        0: "tench",
        281: "tabby",
        285: "Egyptian cat",
        698: "palace",
        872: "tripod",
        985: "daisy",
        999: "toilet tissue",
    }
    assert {index: labels[index] for index in known} == known


@pytest.mark.parametrize("shape", [(2,), (1, 3), ()])
def test_a_row_of_another_shape_is_refused(shape):
    with pytest.raises(SettingError, match="one row of 3 logits"):
        ReadLabels(("a", "b", "c"), count=1)(torch.zeros(shape))
