"""Workers that act together."""

from threading import Barrier
from typing import Any

import pytest

from labkit.bench.crew import ask_all, installed, leave
from labkit.bench.system import System
from labkit.errors import MeasureError

CREW = [System(f"rank {rank}", "a_worker", "own") for rank in range(3)]


def test_all_are_asked_at_once_and_each_for_its_own(pretended: Any) -> None:
    together = Barrier(len(CREW), timeout=10)

    def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        together.wait()  # nobody passes before all have been asked
        return {"rank": fields["rank"]}

    answers = ask_all(pretended((), answer), "join", {system: {"rank": rank} for rank, system in enumerate(CREW)})
    assert answers == {system: {"rank": rank} for rank, system in enumerate(CREW)}


def test_one_that_fails_is_raised(pretended: Any) -> None:
    def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if system == CREW[1]:
            raise MeasureError("rank 1 is gone")
        return {}

    with pytest.raises(MeasureError, match="rank 1 is gone"):
        ask_all(pretended((), answer), "join", {system: {} for system in CREW})


def test_those_who_run_close_before_they_are_ended_and_a_failing_one_is_ended_too(pretended: Any) -> None:
    released: list[System] = []

    def answer(system: System, do: str, fields: dict[str, Any]) -> dict[str, Any]:
        if system == CREW[0]:
            raise MeasureError("it cannot close")
        return {}

    fleet = pretended((), answer)
    fleet.runs = lambda system: system != CREW[2]
    fleet.release = released.append
    leave(fleet, CREW)
    assert fleet.asked == [(CREW[0], "close"), (CREW[1], "close")]
    assert released == CREW


def test_a_peer_of_this_environment_has_the_version_that_is_installed() -> None:
    import torch

    assert installed("torch", "torch_rank", "torch").version.split("+")[0] == torch.__version__.split("+")[0]
    assert installed("torch", "torch_rank", "torch").requirements == ""
