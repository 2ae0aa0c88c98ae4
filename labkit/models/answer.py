"""What a row of a model's output says to a person."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labkit.errors import require

__all__ = ["Classification", "Guess", "ReadLabels", "imagenet_labels", "read_vector"]


@dataclass(frozen=True, slots=True)
class Guess:
    """A label and the model's probability for it."""

    label: str
    probability: float

    def __str__(self) -> str:
        return f"{self.label} ({self.probability:.0%})"


@dataclass(frozen=True, slots=True)
class Classification:
    """A photo's most probable labels, best first.

    >>> print(Classification((Guess("espresso", 0.93), Guess("cup", 0.04))))
    espresso (93%), cup (4%)
    """

    guesses: tuple[Guess, ...]

    @property
    def label(self) -> str:
        """The most probable label."""
        return self.guesses[0].label

    def __str__(self) -> str:
        return ", ".join(map(str, self.guesses))


@dataclass(frozen=True, slots=True)
class ReadLabels:
    """Turn a row of logits into the `count` most probable of `labels`.

    >>> print(ReadLabels(("cat", "dog"), count=1)(torch.tensor([4.0, 0.0])))
    cat (98%)
    """

    labels: tuple[str, ...]
    count: int = 5

    def __post_init__(self) -> None:
        require(
            1 <= self.count <= len(self.labels),
            f"count is {self.count} of {len(self.labels)} labels",
            "Ask for at least 1 label and no more than there are.",
        )

    def __call__(self, row: Tensor) -> Classification:
        """[labels] logits -> the best guesses."""
        require(
            row.shape == (len(self.labels),),
            f"The row has the shape {tuple(row.shape)}",
            f"Give one row of {len(self.labels)} logits.",
        )
        best = torch.topk(row.detach().float().cpu().softmax(-1), self.count)
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Classification(tuple(Guess(self.labels[index], probability) for index, probability in pairs))


def read_vector(row: Any) -> NDArray[np.float32]:
    """Return a row of output as a float32 array, whatever device it is on.

    >>> read_vector(torch.tensor([0.6, 0.8]))
    array([0.6, 0.8], dtype=float32)
    """
    return np.asarray(torch.as_tensor(row).detach().float().cpu().numpy())


@cache
def imagenet_labels() -> tuple[str, ...]:
    """The 1000 class names of ImageNet-1k (ILSVRC 2012), in the order of the logits; see README.md for their origin.

    A class has several names; this is the first. Two names occur twice: "crane" (the bird, the machine) and "maillot".

    >>> imagenet_labels()[967]
    'espresso'
    """
    lines = Path(__file__).with_name("imagenet_labels.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line.split("\t")[1].split(",")[0] for line in lines)
