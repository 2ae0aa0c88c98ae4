"""Named models, from the payload to the answer."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from labkit.errors import SettingError, UnknownName
from labkit.models import catalogue, load
from labkit.models.load import LOADERS

CHELSEA, COFFEE, CAMERAMAN, CHINA, FLOWER = range(5)


@pytest.mark.parametrize(
    ("photo", "labels"),
    [
        (CHELSEA, {"tabby", "tiger cat", "Egyptian cat", "Persian cat", "Siamese cat"}),
        (COFFEE, {"espresso"}),
        (CAMERAMAN, {"tripod"}),
        (CHINA, {"palace"}),
        (FLOWER, {"daisy"}),
    ],
    ids=["chelsea is a cat", "coffee is espresso", "the cameraman a tripod", "china a palace", "the flower a daisy"],
)
def test_photos_get_the_right_label(photo_model, photo_workload, photo, labels):
    answer = photo_model.answer(photo_workload.payload(photo))
    assert answer.label in labels
    probabilities = [guess.probability for guess in answer.guesses]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] > 0.25


def test_each_truth_of_the_photos_is_what_the_model_sees(photo_model, photo_workload):
    known = [pair for pair in zip(photo_workload.payloads, photo_workload.truths, strict=True) if pair[1]]
    assert len(known) >= 8
    assert all(photo_model.answer(payload).label in truth for payload, truth in known)


def test_paraphrases_are_nearest_neighbours(sentence_model, sentence_workload):
    vectors = np.stack([sentence_model.answer(text) for text in sentence_workload.payloads])
    similar = vectors @ vectors.T
    np.fill_diagonal(similar, -1)
    assert tuple(similar.argmax(1)) == sentence_workload.truths


def test_an_embedding_is_a_unit_vector(sentence_model):
    vector = sentence_model.answer("A short sentence.")
    assert vector.shape == (384,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_a_misspelt_name_gets_the_nearest_one():
    with pytest.raises(UnknownName, match="Did you mean 'minilm'"):
        load("minilmm")


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(SettingError, match=r"There is no folder .*absent"):
        load(tmp_path / "absent")


@pytest.mark.parametrize("dtype", ["int8", "float33", "Tensor", torch.int64])
def test_a_dtype_that_is_not_floating_is_refused(dtype):
    with pytest.raises(SettingError, match="dtype is"):
        load("minilm", dtype=dtype)


def test_every_entry_of_the_catalogue_has_a_loader_and_a_true_size():
    assert {entry.name for entry in catalogue()} == set(LOADERS)
    assert all(entry.bytes > 1_000_000 and entry.licence for entry in catalogue())


def test_models_import_without_the_hub_s_library():
    program = "import sys; sys.modules['huggingface_hub'] = None; import labkit.models, labkit.models.fetch"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
