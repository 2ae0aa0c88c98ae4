"""Every notebook of notebooks/, and how to run one by nbval in a pytest process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "notebooks"

Nbval = Callable[..., subprocess.CompletedProcess[str]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "notebook" in metafunc.fixturenames:
        paths = sorted(FOLDER.glob("*.ipynb"))
        metafunc.parametrize("notebook", paths, ids=[path.stem for path in paths])


@pytest.fixture(scope="session")
def notebooks_folder() -> Path:
    return FOLDER


@pytest.fixture(scope="session")
def nbval() -> Nbval:
    """Run nbval on one notebook; a hanging kernel or a coverage tool in this process cannot reach it there."""

    def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", str(path), *(options or ("--nbval-lax",))]
        command += ["--nbval-current-env", "--nbval-cell-timeout=300", "--nbval-kernel-startup-timeout=60"]
        command += ["-q", "-p", "nbval_rules", "-p", "no:cacheprovider", "-o", "addopts=", "--timeout=600"]
        search = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "LABKIT_MODE": "headless", "PYTHONPATH": search}
        return subprocess.run(
            command, env=environment, cwd=path.parent, capture_output=True, text=True, timeout=600, check=False
        )

    return run
