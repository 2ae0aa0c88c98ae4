"""Environments of peers, without making one: what is run, and when."""

import subprocess
import sys
from pathlib import Path

import pytest

from labkit.bench import environment
from labkit.bench.environment import python_of
from labkit.bench.system import BATCHED, BENTOML, LABKIT, LITSERVE, MOSEC, System
from labkit.errors import Unavailable


class Commands:
    """Stands in for subprocess.run; fails where `fails` is part of the command."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.run: list[list[str]] = []

    def __call__(self, command: list[str], **_: object) -> None:
        self.run.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True, exist_ok=True)
        if self.fails and any(self.fails in word for word in command):
            raise subprocess.CalledProcessError(1, command, "", "ERROR: no wheel")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Commands:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    stand_in = Commands()
    monkeypatch.setattr(subprocess, "run", stand_in)
    return stand_in


def test_labkit_runs_where_it_is_installed(commands: Commands) -> None:
    assert python_of(LABKIT) == Path(sys.executable)
    assert commands.run == []


def test_an_environment_is_made_once(commands: Commands, tmp_path: Path) -> None:
    first, second = python_of(BATCHED), python_of(BATCHED)
    assert first == second
    assert first.is_relative_to(tmp_path / "peers" / "batched-0.1.5")
    assert len(commands.run) == 2


def test_where_the_tested_set_cannot_be_had_the_peer_alone_is_asked_for(commands: Commands) -> None:
    commands.fails = ".txt"
    python_of(MOSEC)
    assert commands.run[-1][-1] == "mosec==0.9.8"


def test_a_failed_environment_is_tried_again_the_next_time(commands: Commands) -> None:
    commands.fails = "pip"
    with pytest.raises(Unavailable, match="no wheel"):
        python_of(BENTOML)
    commands.fails = ""
    python_of(BENTOML)
    assert commands.run[-1][-2:] == ["--requirement", str(environment._REQUIREMENTS / "bentoml.txt")]


@pytest.mark.parametrize("system", [BENTOML, BATCHED, LITSERVE, MOSEC], ids=str)
def test_every_requirement_of_a_peer_is_pinned_and_its_version_is_the_one_named(system: System) -> None:
    path = environment._REQUIREMENTS / f"{system.requirements}.txt"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in lines)
    assert f"{system.requirements}=={system.version}" in lines
