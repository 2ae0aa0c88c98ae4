"""Lets the worker processes import `running_stages`, and gives pipelines that are always closed."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labkit.sharding.pipeline import Pipeline

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def pipeline_of() -> Iterator[Callable[..., Pipeline]]:
    opened: list[Pipeline] = []

    def make(stages, **settings) -> Pipeline:
        opened.append(Pipeline(stages, **settings))
        return opened[-1]

    yield make
    for pipeline in opened:
        pipeline.close(drain=False)
