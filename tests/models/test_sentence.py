"""Preprocessing of sentences, held to the tokenizer of transformers."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from labkit.engine import Prepare
from labkit.errors import SettingError
from labkit.models.fetch import fetch
from labkit.models.sentence import PrepareSentence

LONG = "seven red boats cross the quiet lake before noon " * 60


@pytest.fixture(scope="module")
def prepare():
    return PrepareSentence.from_file(fetch("minilm") / "tokenizer.json")


@pytest.fixture(scope="module")
def reference():
    return PreTrainedTokenizerFast(tokenizer_file=str(fetch("minilm") / "tokenizer.json"), pad_token="[PAD]")


def test_ids_are_those_of_transformers_with_zeros_up_to_the_next_length(prepare, reference, sentence_workload):
    for text in (*sentence_workload.payloads, LONG, ""):
        real = reference(text, truncation=True, max_length=256)["input_ids"]
        real = [number for number in real if number != 0]
        row = prepare(text)
        assert row.dtype == torch.int64
        assert row.tolist() == real + [0] * (len(row) - len(real))
        assert len(row) == min(length for length in (16, 32, 64, 128, 256) if length >= len(real))


def test_a_long_text_is_cut_off_and_still_ends_with_the_closing_token(prepare):
    row = prepare(LONG)
    assert len(row) == 256
    assert row[-1] == prepare("short")[2]


def test_into_writes_the_same_row_and_reports_the_real_tokens(prepare, sentence_workload):
    staging, asked = torch.full((2, 256), -1), []

    def place(shape, dtype, real_units=None):
        asked.append((shape, dtype, real_units))
        return staging[1, : shape[0]]

    for text in sentence_workload.payloads:
        row = prepare.into(text, place)
        assert row.data_ptr() == staging[1].data_ptr()
        assert torch.equal(row, prepare(text))
        assert asked[-1] == (tuple(row.shape), torch.int64, int((row != 0).sum()))
    assert (staging[0] == -1).all()


def test_it_is_a_prepare(prepare):
    assert isinstance(prepare, Prepare)


def test_a_text_cannot_smuggle_in_padding(prepare):
    row = prepare("before [PAD] after [SEP]")
    real = int((row != 0).sum())
    assert (row[:real] != 0).all()
    assert (row == prepare("short")[2]).sum() == 1  # one closing token, at the end


def test_an_empty_text_is_the_two_framing_tokens(prepare):
    assert prepare("").tolist() == [101, 102] + [0] * 14


@pytest.mark.parametrize("payload", [None, b"bytes", ["a", "list"], 7])
def test_what_is_no_text_is_refused(prepare, payload):
    with pytest.raises(SettingError, match=f"is a {type(payload).__name__}.*Give a str"):
        prepare(payload)


def test_many_threads_give_the_rows_of_one(prepare, sentence_workload):
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(prepare, sentence_workload.payloads * 5))
    alone = [prepare(text) for text in sentence_workload.payloads] * 5
    assert all(torch.equal(row, other) for row, other in zip(together, alone, strict=True))


@pytest.mark.parametrize("lengths", [(), (32, 16), (16, 16), (1, 8)])
def test_lengths_that_do_not_rise_are_refused(prepare, lengths):
    with pytest.raises(SettingError, match="lengths are"):
        PrepareSentence(prepare.tokenizer, lengths)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SettingError, match="is not a tokenizer"):
        PrepareSentence.from_file(tmp_path / "tokenizer.json")
