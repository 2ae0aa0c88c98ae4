"""A subject small enough for tests: a real network on real rows, in microseconds; and one that can be cut."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from labkit.labs.specimen import Specimen
from labkit.labs.subject import Subject
from labkit.models import wrap
from labkit.sharding.chain import Chain
from labkit.workloads import Workload


@pytest.fixture(scope="session")
def tiny() -> Subject:
    model = wrap(torch.nn.Linear(4, 2), prepare=lambda payload: torch.tensor(payload), name="tiny")
    return Subject(model, Workload("rows", ((1.0, 2.0, 3.0, 4.0), (0.0, 1.0, 0.0, 1.0))), "cpu", "a test's CPU")


@pytest.fixture
def layered() -> Specimen:
    """Six layers, the second much heavier than the others, in worker threads."""
    torch.manual_seed(0)
    widths = (16, 16, 512, 512, 16, 16, 16)
    layers = [torch.nn.Linear(before, after) for before, after in pairwise(widths)]
    module = torch.nn.Sequential(*layers).eval()
    model = wrap(module, prepare=lambda payload: torch.tensor(payload), name="layered")
    rows = tuple(tuple(float(place == hot) for place in range(16)) for hot in range(2))
    subject = Subject(model, Workload("rows", rows), "cpu", "a test's CPU")
    return Specimen(subject, Chain.of(module), device="cpu", carrier="thread")


@pytest.fixture
def given(layered: Specimen, monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Lets a lab find the small specimen in place of the model that it asks for."""

    def give(lab: object) -> None:
        monkeypatch.setattr(lab, "specimen", lambda model, device="auto", fresh=False: layered)

    return give
