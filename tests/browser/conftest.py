"""A real JupyterLab and a real Chromium for the tests of this folder.

lab = lab_page(write_notebook("demo", "print(1)"))   # or the path of any notebook
lab.run_all()
lab.wait_idle()
lab.page            # the Playwright page
lab.complaints      # console errors and page errors so far
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page

QUIET = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "extensionmanager-extension/plugin": {"enabled": False},
}


@dataclass
class LabPage:
    """One notebook, open in JupyterLab in a page of its own."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def command(self, name: str, **arguments: object) -> None:
        """Start a JupyterLab command; some only end when a dialog does, so its end is not waited for."""
        self.page.evaluate("([name, args]) => void window.jupyterapp.commands.execute(name, args)", [name, arguments])

    def wait_idle(self, timeout_s: float = 60.0) -> None:
        """Wait until what `run_all` began has ended and the kernel is idle."""
        self.page.wait_for_function("() => !window.runningAll", timeout=timeout_s * 1000)
        self.page.wait_for_selector(
            ".jp-Notebook-ExecutionIndicator[data-status=idle]", state="attached", timeout=timeout_s * 1000
        )

    def run_all(self) -> None:
        """Run all cells; `wait_idle` waits for their end."""
        self.page.evaluate(
            """async () => {
              const { commands, shell } = window.jupyterapp;
              await shell.currentWidget.context.ready;
              await shell.currentWidget.sessionContext.ready;
              await shell.currentWidget.sessionContext.session.kernel.info;
              window.runningAll = true;
              commands.execute("notebook:run-all-cells").finally(() => (window.runningAll = false));
            }"""
        )

    def reload(self) -> None:
        """Open the page anew, with the kernel left alive."""
        self.command("docmanager:save")
        self.page.wait_for_timeout(300)
        self.page.reload()
        self.wait_idle()

    def use_theme(self, name: str, *, to_look_at: bool = False) -> None:
        """Switch to the theme called `name`; charts paint themselves in its colours for the next second."""
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_selector(f'body[data-jp-theme-name="{name}"]', state="attached")
        if to_look_at:
            self.page.wait_for_timeout(1200)

    @property
    def chart(self) -> Locator:
        """The chart of the first panel."""
        return self.page.locator(".labkit-charts").first

    def button(self, name: str, panel: int = 0) -> Locator:
        """A panel's button."""
        return self.page.locator(".labkit-panel").nth(panel).get_by_role("button", name=name, exact=True)

    def points(self) -> int:
        """How many points the first panel's charts show now."""
        return int(self.chart.get_attribute("data-points") or 0)

    def wait_points(self, more_than: int, timeout_s: float = 15.0) -> None:
        """Wait until the first panel's charts show more than so many points."""
        self.page.wait_for_function(
            "least => Number(document.querySelector('.labkit-charts')?.dataset.points ?? 0) > least",
            arg=more_than,
            timeout=timeout_s * 1000,
        )


@pytest.fixture(scope="session")
def lab_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the JupyterLab of this session serves, with the tests' own lab in it."""
    root = tmp_path_factory.mktemp("lab")
    shutil.copy(Path(__file__).with_name("fake_lab.py"), root)
    return root


@pytest.fixture(scope="session")
def lab_server(lab_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab with settings, workspaces and runtime files of its own."""
    home = tmp_path_factory.mktemp("jupyter")
    for name, settings in QUIET.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LABKIT_MODE", "JPY_"))}
    environ |= {name: str(home / folder) for name, folder in folders.items()}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"]
    command += ["--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="]
    command += [f"--ServerApp.root_dir={lab_root}", "--LabApp.news_url=", "--LabApp.extension_manager=readonly"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    log = home / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait_for(f"http://127.0.0.1:{port}/api/status", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=20)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")


@pytest.fixture
def write_notebook(tmp_path: Path) -> Callable[..., Path]:
    """Writes a notebook of code cells and returns its path."""

    def write(name: str, *cells: str) -> Path:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        path = tmp_path / f"{name}.ipynb"
        nbformat.write(notebook, path)
        return path

    return write


@pytest.fixture
def lab_page(lab_server: str, lab_root: Path, chromium: Browser) -> Iterator[Callable[..., LabPage]]:
    """Opens a copy of a notebook and waits for its kernel; its kernel is shut down after the test."""
    opened: list[LabPage] = []

    def open_page(notebook: Path, width: int = 1280, height: int = 1400) -> LabPage:
        shutil.copy(notebook, lab_root / notebook.name)
        page = chromium.new_page(viewport={"width": width, "height": height})
        lab = LabPage(page)
        opened.append(lab)
        page.on("pageerror", lambda error: lab.complaints.append(str(error)))
        page.on("console", lambda message: lab.complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{lab_server}/lab/workspaces/{notebook.stem}/tree/{notebook.name}")
        lab.wait_idle()
        return lab

    yield open_page
    for lab in opened:
        lab.command("kernelmenu:shutdown")
        lab.page.close()


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """A folder for pictures to look at; LABKIT_SCREENSHOTS names one that outlives the test."""
    folder = Path(os.environ.get("LABKIT_SCREENSHOTS") or tmp_path / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
