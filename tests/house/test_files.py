"""The files at the root: what a newcomer types must exist and do what is said."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(*targets, folder):
    return subprocess.run(["make", "-n", *targets], cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.fixture
def fresh(tmp_path):
    """A clone on a new machine, as far as make can see: no environment yet."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_the_guide_for_contributors_fits_on_one_page():
    assert 10 < len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) < 60


def test_the_licence_is_apache_2():
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]


@pytest.mark.parametrize("target", ["report", "test", "lab", "bench", "check", "doctor"])
def test_every_target_sets_up_the_environment_by_itself_and_only_once(fresh, target):
    first = make(target, folder=fresh)
    assert first.returncode == 0, first.stderr
    assert "-m venv .venv" in first.stdout
    assert "--constraint constraints.txt" in first.stdout
    (fresh / ".venv" / "bin").mkdir(parents=True)
    for name in ("bin/python", ".with-lab", ".with-test"):
        (fresh / ".venv" / name).touch()
    again = make(target, folder=fresh)
    assert "venv .venv" not in again.stdout
    assert "pip install" not in again.stdout


def test_the_report_target_fetches_weights_and_runs_the_main_report(fresh):
    lines = make("report", folder=fresh).stdout.splitlines()[-2:]
    assert "labkit fetch" in lines[0]
    assert "labkit report 90_report_batching" in lines[1]


def test_a_changed_set_of_versions_is_installed(fresh):
    (fresh / ".venv" / "bin").mkdir(parents=True)
    for name in ("bin/python", ".with-lab", ".with-test"):
        (fresh / ".venv" / name).touch()
    os.utime(fresh / ".venv" / ".with-lab", (1, 1))
    assert "--editable '.[lab]'" in make("report", folder=fresh).stdout


def test_another_python_can_be_named_and_too_old_a_one_is_refused(fresh):
    (fresh / "python-old").write_text("#!/bin/sh\nexit 1\n")
    (fresh / "python-old").chmod(0o755)
    done = subprocess.run(
        ["make", "report", "PYTHON=./python-old"], cwd=fresh, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "labkit needs Python 3.11 or newer" in done.stderr


@pytest.mark.parametrize("name", [".ci/run", "scripts/gpu_check.sh", "scripts/install_browser.sh"])
def test_scripts_are_strict_well_formed_and_may_be_run(name):
    script = ROOT / name
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    assert subprocess.run(["bash", "-n", script], capture_output=True, timeout=60).returncode == 0


def test_ci_runs_the_command_that_the_readme_names():
    assert re.search(r"^make test", (ROOT / ".ci" / "run").read_text(), re.M)
    assert "make test" in (ROOT / "README.md").read_text()


def test_ci_runs_every_test_and_both_checkers(fresh):
    plan = make("test", folder=fresh).stdout
    assert [tool for tool in ("ruff check", "ruff format --check", "bin/mypy", "-m pytest") if tool not in plan] == []
    assert "-m pytest -q" in plan.splitlines()[-1]
