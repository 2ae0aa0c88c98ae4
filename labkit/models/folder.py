"""Sentence encoders from a Hugging Face style folder: `config.json`, `model.safetensors`, `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import load_file
from torch import Tensor

from labkit.errors import SettingError, require
from labkit.models.answer import read_vector
from labkit.models.encoder import EncoderShape, from_tensors
from labkit.models.loaded import LoadedModel
from labkit.models.sentence import LENGTHS, PrepareSentence

__all__ = ["load_folder"]

NEEDED = ("config.json", "model.safetensors", "tokenizer.json")
# What this encoder computes; a folder that says anything else would load and then answer wrongly.
REQUIRED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


def load_folder(folder: Path, name: str | None = None) -> LoadedModel:
    """Load a BERT-type encoder on the CPU; only tensors are read, nothing in the folder is executed.

    Pooling is the mean over the tokens, unless `1_Pooling/config.json` (Sentence-Transformers) says the first token.
    The longest sentence is that of the folder's position table, at most 256 tokens.

    Raises `SettingError` when a file is missing or broken, or when the model is of another type.
    """
    missing = [needed for needed in NEEDED if not (folder / needed).is_file()]
    require(not missing, f"{folder} lacks {', '.join(missing)}", f"A model folder needs {', '.join(NEEDED)}.")
    shape = _shape(_json(folder / "config.json"), _pooling(folder))
    lengths = tuple(length for length in LENGTHS if length <= shape.positions) or (shape.positions,)
    prepare = PrepareSentence.from_file(folder / "tokenizer.json", lengths)
    words = prepare.tokenizer.get_vocab_size()
    require(
        words <= shape.vocabulary,
        f"The tokenizer of {folder} has {words} tokens, its model {shape.vocabulary}",
        "Take both from the same model.",
    )
    try:
        encoder = from_tensors(_tensors(folder / "model.safetensors"), shape)
    except (KeyError, RuntimeError) as error:
        raise SettingError(
            f"The tensors of {folder} do not fit its config.json ({error})", "Take both from the same model."
        ) from error
    return LoadedModel(name or folder.name, "sentence to unit vector", encoder, prepare, read_vector)


def _shape(config: Mapping[str, Any], pooling: Literal["mean", "cls"]) -> EncoderShape:
    for key, value in REQUIRED.items():
        found = config.get(key, value)
        require(found == value, f"config.json says {key} {found!r}", f"This encoder computes {value!r} only.")
    try:
        return EncoderShape(
            vocabulary=config["vocab_size"],
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            hidden=config["intermediate_size"],
            positions=config["max_position_embeddings"],
            epsilon=config.get("layer_norm_eps", 1e-12),
            pooling=pooling,
        )
    except KeyError as error:
        raise SettingError(f"config.json does not say {error}", "Give the config.json of a BERT encoder.") from error


def _pooling(folder: Path) -> Literal["mean", "cls"]:
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return "mean"
    modes = {key for key, on in _json(path).items() if key.startswith("pooling_mode_") and on is True}
    if modes == {"pooling_mode_cls_token"}:
        return "cls"
    require(
        modes == {"pooling_mode_mean_tokens"},
        f"{path} asks for {', '.join(sorted(modes)) or 'no pooling'}",
        "Only the mean over the tokens and the first token are known here.",
    )
    return "mean"


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingError(f"{path} is not JSON ({error})", "Get the file again.") from error
    require(isinstance(content, dict), f"{path} holds a {type(content).__name__}", "It must hold a JSON object.")
    return dict(content)


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises its own class, which derives from plain Exception
        raise SettingError(f"{path} is not a safetensors file ({error})", "Get the file again.") from error
    # A model that was trained further may have its encoder under `bert.`.
    return {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
