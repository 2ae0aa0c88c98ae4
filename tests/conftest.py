"""What tests of several folders use: the browser, and notebooks that take little time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

Parameters = dict[str, Any]

# A notebook measures as long and as much as it is told; a test need not wait for good statistics.
LEAST: Parameters = {
    "seconds": 1.0,
    "rounds": 1,
    "cap": 4,
    "threads": 1,
    "stages": 2,
    "kills": 1,
    "policies": "no batching, greedy, greedy again",
}
# A study of batching takes ten seconds or more; what has many cases needs less for each.
OF_ITS_OWN: dict[str, Parameters] = {
    "13_batching_memory_and_overlap": {"seconds": 0.5},
    "20_sharding_partition": {"seconds": 0.3},
    "22_sharding_vs_batching": {"seconds": 0.1, "rows": 2},
    "90_report_batching": {"seconds": 10.0},
    "91_report_sharding": {"rows": 2},
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium; where it is missing the tests fail, because the set-up installs it.

    For each file anew: while Playwright runs, the main thread has a running event loop, which later tests cannot have.
    """
    from playwright.sync_api import sync_playwright

    path = os.environ.get("LABKIT_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def least() -> Callable[..., Parameters]:
    """Parameters with which a notebook takes little time; those given are added where it declares them."""

    def least(path: Path, **others: Any) -> Parameters:
        import nbformat

        from labkit.report.parameters import declared

        known = declared(nbformat.read(path, as_version=4))
        wanted = LEAST | OF_ITS_OWN.get(path.stem, {}) | others
        return {name: value for name, value in wanted.items() if name in known}

    return least


@pytest.fixture
def shortened(least: Callable[..., Parameters], tmp_path: Path) -> Callable[..., Path]:
    """Copies a notebook and gives the copy those parameters."""

    def shorten(path: Path, **others: Any) -> Path:
        import nbformat
        from papermill.iorw import load_notebook_node
        from papermill.parameterize import parameterize_notebook

        copy = tmp_path / path.name
        nbformat.write(parameterize_notebook(load_notebook_node(str(path)), least(path, **others)), copy)
        return copy

    return shorten
