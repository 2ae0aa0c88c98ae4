"""Photos and sentences as workloads."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from labkit.errors import SettingError, Unavailable
from labkit.models.answer import imagenet_labels
from labkit.workloads import payloads
from labkit.workloads.payloads import Workload, photos, sentences


def test_every_photo_is_a_jpeg_of_a_useful_size():
    assert len(photos()) == 18
    for payload in photos().payloads:
        with Image.open(BytesIO(payload)) as photo:
            assert photo.format == "JPEG"
            assert min(photo.size) > 150
            photo.load()


def test_photos_are_all_different_and_some_are_grey():
    assert len(set(photos().payloads)) == len(photos())
    modes = {Image.open(BytesIO(payload)).mode for payload in photos().payloads}
    assert modes == {"L", "RGB"}


def test_photos_that_are_jpeg_already_are_passed_on_byte_for_byte():
    import sklearn

    path = f"{sklearn.__path__[0]}/datasets/images/china.jpg"
    with open(path, "rb") as stream:
        assert stream.read() in photos().payloads


def test_encoding_is_deterministic():
    photos.cache_clear()
    first = photos()
    photos.cache_clear()
    assert photos() == first


def test_the_truths_of_photos_are_labels_of_imagenet():
    truths = [label for truth in photos().truths for label in truth]
    assert len(truths) > 8
    assert set(truths) <= set(imagenet_labels())


def test_a_photo_that_is_not_installed_is_named(monkeypatch):
    with pytest.raises(Unavailable, match=r"skimage/data/absent\.png is not installed"):
        payloads._installed("skimage/data/absent.png")
    with pytest.raises(Unavailable, match="no_such_package"):
        payloads._installed("no_such_package/photo.jpg")


def test_each_sentence_s_truth_is_its_partner():
    workload = sentences()
    assert len(workload) == len(set(workload.payloads)) == 64
    for index, partner in enumerate(workload.truths):
        assert partner != index
        assert workload.truths[partner] == index


def test_sentences_have_many_lengths():
    words = [len(text.split()) for text in sentences().payloads]
    assert min(words) == 1
    assert max(words) > 90
    assert len(set(words)) > 20


def test_payloads_are_counted_round_and_round():
    workload = Workload("letters", ("a", "b", "c"))
    assert [workload.payload(index) for index in (0, 2, 3, 7)] == ["a", "c", "a", "b"]


def test_an_order_is_the_same_for_the_same_seed_and_another_for_another():
    workload = sentences()
    assert np.array_equal(workload.order(100, seed=3), workload.order(100, seed=3))
    assert not np.array_equal(workload.order(100, seed=3), workload.order(100, seed=4))
    assert np.array_equal(workload.order(200, seed=3)[:100], workload.order(100, seed=3))


def test_an_order_uses_all_payloads_about_equally():
    counts = np.bincount(photos().order(18_000, seed=0), minlength=18)
    assert counts.min() > 850
    assert counts.max() < 1150


def test_a_workload_without_payloads_or_with_too_few_truths_is_refused():
    with pytest.raises(SettingError, match="no payloads"):
        Workload("empty", ())
    with pytest.raises(SettingError, match="2 payloads and 1 truths"):
        Workload("uneven", ("a", "b"), ("x",))
    with pytest.raises(SettingError, match="count is -1"):
        Workload("one", ("a",)).order(-1, seed=0)
