"""The worker of case (d): what the bare model is run beside."""

from __future__ import annotations

from threading import Lock

import torch

from labkit.bench.peers.labkit_models import _Bench, _Remembering


class Workload:
    """Three payloads."""

    def __len__(self) -> int:
        return 3

    def payload(self, index: int) -> int:
        return index


class Model:
    """Notes what was preprocessed."""

    def __init__(self) -> None:
        self.prepared: list[int] = []
        self._lock = Lock()

    def prepare(self, payload: int) -> None:
        with self._lock:
            self.prepared.append(payload)


def test_beside_the_bare_model_one_payload_is_preprocessed_for_each_row() -> None:
    bench, taken = _Bench(), []

    def module(batch: torch.Tensor) -> torch.Tensor:
        taken.append(len(batch))
        return batch

    shape = torch.Size([4, 2])
    remembering = _Remembering(module)
    remembering(torch.zeros(shape))
    bench.model, bench.workload, bench.prepare_threads = Model(), Workload(), 2
    bench.batches = {4: (remembering, [shape])}
    assert bench.beside(4, 0.02)["per_s"] > 0
    # Not for the batch that was remembered, nor for the one that warms up.
    assert len(bench.model.prepared) == sum(taken[2:])
    assert set(bench.model.prepared) == {0, 1, 2}
    prepared = len(bench.model.prepared)
    assert bench.bare(4, 0.02)["per_s"] > 0
    assert len(bench.model.prepared) == prepared
