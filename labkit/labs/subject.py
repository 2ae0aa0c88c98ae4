"""What a lab experiments on: a named model on a device, with real payloads for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from labkit.devices import best, find
from labkit.errors import require_known
from labkit.models import LoadedModel, load
from labkit.workloads import Workload, photos, sentences

__all__ = ["SUBJECTS", "Subject", "subject"]

# Which payloads each model of the catalogue answers.
SUBJECTS = {"efficientnet-lite0": photos, "minilm": sentences}


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, the payloads to send it, and the device it runs on."""

    model: LoadedModel
    workload: Workload
    device_id: str
    device_name: str

    def batch(self, rows: int) -> torch.Tensor:
        """A ready batch `[rows, *row]` of the first payload, repeated, on the device."""
        row = self.model.prepare(self.workload.payload(0))
        return torch.stack([row] * rows).to(self.device_id)


def subject(model: str, device: str = "auto") -> Subject:
    """Load `model` on `device` ("auto": the best that is attached); raises `UnknownName` for either.

    The model's weights are fetched if they are not in the cache yet.
    """
    require_known("model for this lab", model, SUBJECTS)
    where = best() if device == "auto" else find(device)
    return Subject(load(model, where.id), SUBJECTS[model](), where.id, where.name)
