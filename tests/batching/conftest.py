"""Models whose time is in the hands of the test, so that order never depends on the clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from threading import Event, Semaphore

import pytest
from hypothesis import settings

# An example's time says nothing on a shared machine.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

PATIENCE_S = 20.0


class Gate:
    """A model that answers each row with itself, but only while it is open; `batches` is what it was given."""

    def __init__(self) -> None:
        self.batches: list[list[object]] = []
        self._opened = Event()
        self._begun = Semaphore(0)

    def __call__(self, rows):
        self.batches.append(list(rows))
        self._begun.release()
        assert self._opened.wait(PATIENCE_S), "the test forgot to open its gate"
        return rows

    def wait_begun(self) -> None:
        """Return when one more batch has begun."""
        assert self._begun.acquire(timeout=PATIENCE_S), "no batch began"

    def open(self) -> None:
        self._opened.set()

    def shut(self) -> None:
        self._opened.clear()

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]


@pytest.fixture
def _hasty() -> Iterator[None]:
    """Threads take turns so often that what is not atomic shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A shut gate, which is opened at the end of the test whatever happens."""
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """`until(condition)` returns as soon as `condition()` holds, and fails if it never does."""

    def wait(condition: Callable[[], bool]) -> None:
        give_up_s = time.perf_counter() + PATIENCE_S
        while not condition():
            assert time.perf_counter() < give_up_s, "it never came true"
            time.sleep(0.0005)

    return wait


@pytest.fixture
def best_of() -> Callable[..., None]:
    """`best_of(n, attempt)`: a bound on time must hold in one of `n` attempts, for the machine is shared."""

    def run(attempts: int, attempt: Callable[[], bool]) -> None:
        assert any(attempt() for _ in range(attempts)), f"it held in none of {attempts} attempts"

    return run
