"""A subject small enough for tests: a real network on real rows, in microseconds."""

import pytest
import torch

from labkit.labs.subject import Subject
from labkit.models import wrap
from labkit.workloads import Workload


@pytest.fixture
def tiny() -> Subject:
    model = wrap(torch.nn.Linear(4, 2), prepare=lambda payload: torch.tensor(payload), name="tiny")
    return Subject(model, Workload("rows", ((1.0, 2.0, 3.0, 4.0), (0.0, 1.0, 0.0, 1.0))), "cpu", "a test's CPU")
