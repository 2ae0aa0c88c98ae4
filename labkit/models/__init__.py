"""What runs: models by name or from a folder, with their preprocessing and the reading of their answers.

    model = load("minilm")
    row = model.prepare("A cat sleeps.")        # int64 [16]
    vector = model.module(row.unsqueeze(0))     # float32 [1, 384]

Any `nn.Module` or function takes a model's place through `wrap`. Weights come through `labkit.models.fetch`.
"""

from labkit.models.answer import Classification, Guess
from labkit.models.catalogue import Entry, catalogue
from labkit.models.load import load
from labkit.models.loaded import LoadedModel, wrap

__all__ = ["Classification", "Entry", "Guess", "LoadedModel", "catalogue", "load", "wrap"]
