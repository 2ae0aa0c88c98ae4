"""The sentence encoder against BertModel of transformers."""

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional
from transformers import BertConfig, BertModel

from labkit.errors import SettingError
from labkit.models.encoder import EncoderShape, from_tensors
from labkit.models.fetch import fetch

TINY = EncoderShape(vocabulary=50, width=24, layers=2, heads=3, hidden=40, positions=20)


def ids_of(lengths, width, vocabulary=50, seed=0):
    """[len(lengths), width] random ids, padded with 0."""
    ids = torch.randint(1, vocabulary, (len(lengths), width), generator=torch.Generator().manual_seed(seed))
    for row, length in zip(ids, lengths, strict=True):
        row[length:] = 0
    return ids


def tiny_bert():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=20,
        initializer_range=0.3,
    )
    return BertModel(config, add_pooling_layer=False).eval()


@torch.no_grad()
def mean_pooled(bert, ids):
    mask = (ids != 0).float()
    hidden = bert(ids, attention_mask=mask).last_hidden_state
    return functional.normalize((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)


def test_minilm_gives_the_vectors_of_transformers(sentence_model, sentence_workload):
    folder = fetch("minilm")
    bert = BertModel(BertConfig.from_pretrained(folder), add_pooling_layer=False).eval()
    assert not bert.load_state_dict(load_file(folder / "model.safetensors"), strict=False).missing_keys
    rows = [sentence_model.prepare(text) for text in sentence_workload.payloads]
    ids = torch.stack([row for row in rows if len(row) == 32])
    assert len(ids) > 10
    torch.testing.assert_close(sentence_model.module(ids), mean_pooled(bert, ids), rtol=0, atol=1e-5)


def test_a_random_encoder_gives_the_vectors_of_transformers():
    bert, ids = tiny_bert(), ids_of([3, 7, 12, 20], 20)
    torch.testing.assert_close(from_tensors(bert.state_dict(), TINY)(ids), mean_pooled(bert, ids), rtol=0, atol=1e-5)


def test_first_token_pooling_gives_the_vectors_of_transformers():
    bert, ids = tiny_bert(), ids_of([5, 9], 9)
    shape = EncoderShape(50, 24, 2, 3, 40, 20, pooling="cls")
    with torch.no_grad():
        expected = functional.normalize(bert(ids, attention_mask=(ids != 0).float()).last_hidden_state[:, 0], dim=-1)
    torch.testing.assert_close(from_tensors(bert.state_dict(), shape)(ids), expected, rtol=0, atol=1e-5)


def test_padding_does_not_change_a_vector():
    encoder, ids = from_tensors(tiny_bert().state_dict(), TINY), ids_of([4, 6], 18)
    torch.testing.assert_close(encoder(ids)[1:], encoder(ids[1:, :6]), rtol=0, atol=1e-5)


def test_a_batch_of_n_equals_n_singles(sentence_model, sentence_workload):
    rows = [sentence_model.prepare(text) for text in sentence_workload.payloads]
    ids = torch.stack([row for row in rows if len(row) == 16][:8])
    alone = torch.cat([sentence_model.module(row.unsqueeze(0)) for row in ids])
    torch.testing.assert_close(sentence_model.module(ids), alone, rtol=0, atol=1e-5)


def test_a_row_of_padding_alone_is_finite_and_harms_no_other_row():
    encoder, ids = from_tensors(tiny_bert().state_dict(), TINY), ids_of([6, 0], 8)
    vectors = encoder(ids)
    assert vectors.isfinite().all()
    torch.testing.assert_close(vectors[:1], encoder(ids[:1]), rtol=0, atol=1e-5)


def test_vectors_have_length_one_and_float32_for_bfloat16_weights():
    vectors = from_tensors(tiny_bert().state_dict(), TINY).bfloat16()(ids_of([4, 5, 6], 8))
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(3))


def test_more_tokens_than_positions_are_refused():
    with pytest.raises(SettingError, match=r"\(1, 21\).*at most 20 tokens"):
        from_tensors(tiny_bert().state_dict(), TINY)(ids_of([21], 21))


@pytest.mark.parametrize("change", [{"heads": 5}, {"layers": 0}, {"pooling": "max"}])
def test_impossible_shapes_are_refused(change):
    with pytest.raises(SettingError):
        EncoderShape(**change)
