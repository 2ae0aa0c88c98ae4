"""The files at the root: what a newcomer types must exist and do what is said."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(*arguments, folder):
    """Run make as a newcomer would; these tests may themselves run under another make with settings of its own."""
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTHON", "NAME", "ARGS")
    plain = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(["make", *arguments], cwd=folder, env=plain, capture_output=True, text=True, timeout=60)


def plan(target, folder):
    done = make("-n", target, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


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


@pytest.fixture
def set_up(fresh):
    """The same, after the environment was made."""
    (fresh / ".venv" / "bin").mkdir(parents=True)
    for name in ("bin/python", ".with-lab", ".with-test"):
        (fresh / ".venv" / name).touch()
    return fresh


@pytest.mark.parametrize("target", ["report", "test", "lab", "bench", "check", "doctor"])
def test_every_target_sets_up_the_environment_by_itself(fresh, target):
    assert "-m venv .venv" in plan(target, fresh)
    assert "--constraint constraints.txt --editable" in plan(target, fresh)


@pytest.mark.parametrize("target", ["report", "test", "lab", "bench", "check", "doctor"])
def test_a_second_call_of_any_target_installs_nothing(set_up, target):
    assert "-m venv" not in plan(target, set_up)
    assert "pip install" not in plan(target, set_up)


def test_the_report_target_fetches_weights_and_runs_the_main_report(set_up):
    fetch, report = plan("report", set_up).splitlines()
    assert "labkit fetch" in fetch
    assert "labkit report 90_report_batching" in report


def test_a_changed_set_of_versions_is_installed(set_up):
    os.utime(set_up / ".venv" / ".with-lab", (1, 1))
    assert "--editable '.[lab]'" in plan("report", set_up)


def test_too_old_a_python_is_refused_with_a_word_on_how_to_name_another(fresh):
    (fresh / "python-old").write_text("#!/bin/sh\nexit 1\n")
    (fresh / "python-old").chmod(0o755)
    done = make("report", "PYTHON=./python-old", folder=fresh)
    assert done.returncode != 0
    assert "labkit needs Python 3.11 or newer" in done.stderr
    assert not (fresh / ".venv").exists()


@pytest.mark.parametrize("name", [".ci/run", "scripts/gpu_check.sh", "scripts/install_browser.sh"])
def test_scripts_are_strict_well_formed_and_may_be_run(name):
    script = ROOT / name
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text()
    assert subprocess.run(["bash", "-n", script], capture_output=True, timeout=60).returncode == 0


def test_ci_runs_the_command_that_the_readme_names():
    assert re.search(r"^make test", (ROOT / ".ci" / "run").read_text(), re.M)
    assert "make test" in (ROOT / "README.md").read_text()


def test_the_test_target_runs_both_checkers_and_then_every_test(set_up):
    lines = plan("test", set_up).splitlines()
    assert [line.removeprefix(".venv/bin/") for line in lines] == [
        "ruff check .",
        "ruff format --check .",
        "mypy",
        "scripts/install_browser.sh",
        "python -m pytest -q ",
    ]
