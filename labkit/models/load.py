"""`load`: from a name or a folder to a model that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from labkit.errors import SettingError, UnknownName, require
from labkit.models.answer import ReadLabels, imagenet_labels
from labkit.models.catalogue import EFFICIENTNET, MINILM
from labkit.models.efficientnet import from_checkpoint
from labkit.models.fetch import fetch
from labkit.models.folder import load_folder
from labkit.models.loaded import LoadedModel
from labkit.models.photo import PreparePhoto

__all__ = ["load"]


def load(name_or_path: str | Path, device: str = "cpu", dtype: torch.dtype | str | None = None) -> LoadedModel:
    """Load a model of the catalogue (fetched first if need be), or a Hugging Face style folder of a BERT encoder.

    `device` is one of `labkit.devices` ("cpu", "cuda:0"), `dtype` a floating type such as "bfloat16"; without it the
    weights stay as they were stored. The module is in eval mode, its parameters ask for no gradient, and it takes and
    gives the same dtypes (float32 or int64 in, float32 out) whatever its weights are.

    Raises `UnknownName`, `SettingError` for a folder or dtype that does not fit, and what `fetch` raises.

        model = load("efficientnet-lite0")
        print(model.answer(Path("photo.jpg").read_bytes()))
    """
    number_type = _number_type(dtype)
    model = _load(name_or_path)
    model.module.to(device=device, dtype=number_type)
    return replace(model, device=device)


def _load(name_or_path: str | Path) -> LoadedModel:
    if isinstance(name_or_path, str) and name_or_path in LOADERS:
        return LOADERS[name_or_path]()
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return load_folder(folder)
    looks_like_path = isinstance(name_or_path, Path) or len(folder.parts) > 1
    require(not looks_like_path, f"There is no folder {folder}", "Name a folder that exists, or a catalogue's model.")
    raise UnknownName.among("model", str(name_or_path), LOADERS)


def _load_efficientnet() -> LoadedModel:
    path = fetch(EFFICIENTNET) / EFFICIENTNET.artifact.files[0].name
    network = from_checkpoint(torch.load(path, map_location="cpu", weights_only=True))
    return LoadedModel(EFFICIENTNET.name, EFFICIENTNET.task, network, PreparePhoto(), ReadLabels(imagenet_labels()))


def _load_minilm() -> LoadedModel:
    return load_folder(fetch(MINILM), MINILM.name)


LOADERS: dict[str, Callable[[], LoadedModel]] = {
    EFFICIENTNET.name: _load_efficientnet,
    MINILM.name: _load_minilm,
}


def _number_type(dtype: torch.dtype | str | None) -> torch.dtype | None:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is None:
        return None
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise SettingError(f"dtype is {dtype!r}", "Give a floating type: 'float32', 'bfloat16' or 'float16'.")
    return found
