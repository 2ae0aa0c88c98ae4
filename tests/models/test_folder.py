"""Hugging Face style folders: a tiny random one, written by transformers and tokenizers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.nn import functional
from transformers import BertConfig, BertModel

from labkit.errors import SettingError
from labkit.models import load

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "dog", "sleeps", "barks", "red")


def tokenizer(words):
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(word, words.index(word)) for word in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return made


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=40,
        initializer_range=0.4,
    )
    path = tmp_path / "tiny"
    BertModel(config).save_pretrained(path)
    tokenizer(WORDS).save(str(path / "tokenizer.json"))
    return path


def change_config(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def expected(folder, ids, pool):
    with torch.no_grad():
        hidden = BertModel.from_pretrained(folder).eval()(torch.tensor([ids])).last_hidden_state[0]
    return functional.normalize(pool(hidden), dim=-1).numpy()


def test_a_folder_gives_the_vectors_of_transformers(folder):
    model = load(folder)
    assert model.name == "tiny"
    assert model.answer("a red cat sleeps") == pytest.approx(
        expected(folder, [2, 4, 9, 5, 7, 3], lambda hidden: hidden.mean(0)), abs=1e-5
    )
    assert load(str(folder)).prepare("a dog").tolist() == [2, 4, 6, 3] + [0] * 12


def test_lengths_end_where_the_positions_of_the_model_end(folder):
    assert len(load(folder).prepare("red " * 100)) == 32


def test_first_token_pooling_is_read_from_the_folder(folder):
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    assert load(folder).answer("a dog barks") == pytest.approx(
        expected(folder, [2, 4, 6, 8, 3], lambda hidden: hidden[0]), abs=1e-5
    )


def test_pooling_that_this_encoder_lacks_is_refused(folder):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(SettingError, match="pooling_mode_max_tokens"):
        load(folder)


def test_tensors_under_bert_are_found(folder):
    before = load(folder).answer("a cat")
    tensors = load_file(folder / "model.safetensors")
    save_file({f"bert.{name}": tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    assert load(folder).answer("a cat") == pytest.approx(before, abs=1e-6)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(SettingError, match=f"lacks {name}"):
        load(folder)


@pytest.mark.parametrize(
    "change", [{"model_type": "roberta"}, {"hidden_act": "relu"}, {"position_embedding_type": "relative_key"}]
)
def test_a_model_that_this_encoder_does_not_compute_is_refused(folder, change):
    change_config(folder / "config.json", **change)
    with pytest.raises(SettingError, match=next(iter(change.values()))):
        load(folder)


def test_a_config_of_other_sizes_than_the_tensors_is_refused(folder):
    change_config(folder / "config.json", intermediate_size=21)
    with pytest.raises(SettingError, match=r"tensors of .* do not fit"):
        load(folder)


def test_a_config_with_more_layers_than_the_tensors_is_refused(folder):
    change_config(folder / "config.json", num_hidden_layers=3)
    with pytest.raises(SettingError, match=r"encoder\.layer\.2"):
        load(folder)


def test_a_broken_config_is_refused(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(SettingError, match="is not JSON"):
        load(folder)


def test_a_pickle_under_the_name_of_safetensors_is_refused(folder):
    torch.save({"a": torch.zeros(1)}, folder / "model.safetensors")
    with pytest.raises(SettingError, match="is not a safetensors file"):
        load(folder)


def test_a_tokenizer_whose_token_0_is_not_padding_is_refused(folder):
    tokenizer(WORDS[1:] + WORDS[:1]).save(str(folder / "tokenizer.json"))
    with pytest.raises(SettingError, match=r"Token 0 of .* is '\[UNK\]'"):
        load(folder)


def test_a_tokenizer_with_more_words_than_the_model_is_refused(folder):
    tokenizer((*WORDS, "extra")).save(str(folder / "tokenizer.json"))
    with pytest.raises(SettingError, match="has 11 tokens, its model 10"):
        load(folder)
