"""The two catalogue models, fetched by the real code (once per machine: they stay in the cache folder)."""

import pytest

from labkit.models import LoadedModel, load
from labkit.workloads.payloads import Workload, photos, sentences


@pytest.fixture(scope="session")
def photo_model() -> LoadedModel:
    return load("efficientnet-lite0")


@pytest.fixture(scope="session")
def sentence_model() -> LoadedModel:
    return load("minilm")


@pytest.fixture(scope="session")
def photo_workload() -> Workload:
    return photos()


@pytest.fixture(scope="session")
def sentence_workload() -> Workload:
    return sentences()
