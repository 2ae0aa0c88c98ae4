"""A BERT-type sentence encoder: token ids in, one unit vector per sentence out.

    ids [B, L] -> embeddings -> layers x (attention, feed-forward) -> pool over real tokens -> unit vectors [B, width]

The network of BERT (Devlin et al., 2018) with the pooling of Sentence-BERT (Reimers and Gurevych, 2019). The mask is
read from the ids: id 0 is padding, so a batch is one tensor. Attention is torch's own fused one, with the three
projections in one matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from labkit.errors import require

__all__ = [
    "Embedding",
    "Encoder",
    "EncoderShape",
    "Enter",
    "Layer",
    "Leave",
    "Through",
    "from_tensors",
]


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """The sizes of an encoder; the defaults are those of all-MiniLM-L6-v2."""

    vocabulary: int = 30522
    width: int = 384
    layers: int = 6
    heads: int = 12
    hidden: int = 1536
    positions: int = 512
    epsilon: float = 1e-12
    pooling: Literal["mean", "cls"] = "mean"

    def __post_init__(self) -> None:
        sizes = (self.vocabulary, self.width, self.layers, self.heads, self.hidden, self.positions)
        require(min(sizes) >= 1, f"The smallest of an encoder's sizes is {min(sizes)}", "Each must be at least 1.")
        require(
            self.width % self.heads == 0,
            f"width {self.width} does not divide by {self.heads} heads",
            "Give a multiple of the number of heads.",
        )
        require(
            self.pooling in ("mean", "cls"),
            f"pooling is {self.pooling!r}",
            "This encoder pools by 'mean' (over the real tokens) or 'cls' (the first token).",
        )


class Embedding(nn.Module):
    """Word, position and segment vectors, added and normalised."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.positions, shape.width)
        self.segment = nn.Embedding(2, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=shape.epsilon)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, L] -> [B, L, width]; all tokens are of the first segment."""
        places = self.position.weight[: ids.shape[1]] + self.segment.weight[0]
        embedded: Tensor = self.norm(self.word(ids) + places)
        return embedded


class Layer(nn.Module):
    """Attention and feed-forward, each added to its input and normalised after."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.project = nn.Linear(shape.width, 3 * shape.width)
        self.gather = nn.Linear(shape.width, shape.width)
        self.attention_norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.up = nn.Linear(shape.width, shape.hidden)
        self.down = nn.Linear(shape.hidden, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=shape.epsilon)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, L, width], mask [B, 1, 1, L] (True: attend) -> [B, L, width]."""
        x = self.attention_norm(x + self.gather(self._attend(x, mask)))
        y: Tensor = self.norm(x + self.down(functional.gelu(self.up(x))))
        return y

    def _attend(self, x: Tensor, mask: Tensor) -> Tensor:
        split = self.project(x).unflatten(-1, (3, self.heads, -1))  # [B, L, 3, heads, width / heads]
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each [B, heads, L, width / heads]
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return mixed.transpose(1, 2).flatten(2)


class Encoder(nn.Module):
    """The whole network; int64 ids [B, L], padded with 0 on the right -> float32 unit vectors [B, width].

    L may be anything up to `shape.positions`. A row of padding alone gives a finite vector without meaning.
    """

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = Embedding(shape)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def forward(self, ids: Tensor) -> Tensor:
        """[B, L] -> [B, width]."""
        mask = _mask(ids, self.shape.positions)
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, mask[:, None, None, :])
        return functional.normalize(_pooled(x.float(), mask, self.shape.pooling), dim=-1)

    def chain(self) -> list[tuple[str, nn.Module]]:
        """The network as layers from one value to the next, for cutting it: (x, mask) goes from layer to layer."""
        blocks = ((f"layer{number}", Through(layer)) for number, layer in enumerate(self.layers))
        return [
            ("embedding", Enter(self.embedding, self.shape.positions)),
            *blocks,
            ("pool", Leave(self.shape.pooling)),
        ]


class Enter(nn.Module):
    """The first layer of an encoder's chain: ids [B, L] -> x [B, L, width] and the mask of real tokens [B, L]."""

    def __init__(self, embedding: Embedding, positions: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """[B, L] -> [B, L, width], [B, L]."""
        mask = _mask(ids, self.positions)
        return self.embedding(ids), mask


class Through(nn.Module):
    """A layer in the middle of an encoder's chain: it passes the mask on."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, value: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """(x, mask) -> (x, mask)."""
        x, mask = value
        return self.layer(x, mask[:, None, None, :]), mask


class Leave(nn.Module):
    """The last layer of an encoder's chain: pools over the real tokens."""

    def __init__(self, pooling: Literal["mean", "cls"]) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, value: tuple[Tensor, Tensor]) -> Tensor:
        """(x, mask) -> unit vectors [B, width]."""
        x, mask = value
        return functional.normalize(_pooled(x.float(), mask, self.pooling), dim=-1)


def _mask(ids: Tensor, positions: int) -> Tensor:
    """[B, L] -> [B, L], True where a token is real."""
    require(
        ids.ndim == 2 and ids.shape[1] <= positions,
        f"The ids have the shape {tuple(ids.shape)}",
        f"Give [rows, tokens] with at most {positions} tokens.",
    )
    mask = ids != 0
    mask[:, 0] = True  # the first token of a sentence is never padding; a row without any token stays finite
    return mask


def _pooled(x: Tensor, mask: Tensor, pooling: Literal["mean", "cls"]) -> Tensor:
    if pooling == "cls":
        return x[:, 0]
    weights = mask.unsqueeze(-1).float()
    return (x * weights).sum(1) / weights.sum(1)


def from_tensors(tensors: Mapping[str, Tensor], shape: EncoderShape) -> Encoder:
    """Build the encoder from tensors with the names of Hugging Face's `BertModel`, ready for inference.

    Raises `KeyError` when a tensor is missing and `RuntimeError` when one has another shape.
    """
    with torch.device("meta"):
        encoder = Encoder(shape)
    ours = _embedding(tensors)
    for number in range(shape.layers):
        ours |= {f"layers.{number}.{name}": tensor for name, tensor in _layer(tensors, number).items()}
    encoder.load_state_dict(ours, assign=True)
    return encoder.eval().requires_grad_(False)


def _embedding(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    theirs = {"word": "word_embeddings", "position": "position_embeddings", "segment": "token_type_embeddings"}
    ours = {f"embedding.{name}.weight": tensors[f"embeddings.{their}.weight"] for name, their in theirs.items()}
    return ours | {f"embedding.norm.{leaf}": tensors[f"embeddings.LayerNorm.{leaf}"] for leaf in ("weight", "bias")}


def _layer(tensors: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    theirs = {
        "gather": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm": "output.LayerNorm",
    }
    stem = f"encoder.layer.{number}"
    ours = {}
    for leaf in ("weight", "bias"):
        parts = [tensors[f"{stem}.attention.self.{part}.{leaf}"] for part in ("query", "key", "value")]
        ours[f"project.{leaf}"] = torch.cat(parts)
        ours |= {f"{name}.{leaf}": tensors[f"{stem}.{their}.{leaf}"] for name, their in theirs.items()}
    return ours
