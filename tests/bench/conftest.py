"""A fleet of pretended workers, so that the cases can be tested without measuring anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from labkit.bench.fleet import Fleet
from labkit.bench.system import System

Answer = Callable[[System, str, dict[str, Any]], dict[str, Any]]


class PretendedFleet(Fleet):
    """Answers by a function; keeps what was asked, in order."""

    def __init__(self, systems: tuple[System, ...], answer: Answer) -> None:
        super().__init__(systems)
        self.answer = answer
        self.asked: list[tuple[System, str]] = []

    def ask(self, system: System, do: str, **fields: Any) -> dict[str, Any]:
        self.asked.append((system, do))
        return self.answer(system, do, fields)


@pytest.fixture
def pretended() -> Callable[[tuple[System, ...], Answer], PretendedFleet]:
    return PretendedFleet
