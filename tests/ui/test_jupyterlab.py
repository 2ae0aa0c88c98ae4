import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import websocket

from labkit.errors import SettingError
from labkit.ui import jupyterlab

# A way to start it that is the same as the command line's, in a process that a test can stop.
CODE = """
import sys
from pathlib import Path
from labkit.ui.jupyterlab import start
sys.exit(start(Path(sys.argv[1]), int(sys.argv[2]), browser=False))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Lab:
    """A running JupyterLab, and what it said on stderr."""

    def __init__(self, folder: Path):
        self.notebooks, self.port = folder / "notebooks", free_port()
        self.notebooks.mkdir()
        (self.notebooks / "here.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
        elsewhere = folder / "elsewhere"
        elsewhere.mkdir()
        home = folder / "home"
        trap = home / ".jupyter"
        trap.mkdir(parents=True)
        (trap / "jupyter_lab_config.py").write_text("raise RuntimeError('the settings of the user were read')")
        self.said = folder / "said.txt"
        variables = {
            "HOME": str(home),
            "LABKIT_CACHE": str(folder / "cache"),
            "JUPYTER_PATH": str(wrong_kernel(folder)),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CODE, str(self.notebooks), str(self.port)],
                env={**kept, **variables},
                cwd=elsewhere,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
            )

    def get(self, path: str) -> str:
        return self.ask(path, None)

    def ask(self, path: str, body: bytes | None) -> str:
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def await_start(self) -> None:
        """Wait for the address on its stderr, as a person does, and take the token from there."""
        until = time.monotonic() + 60
        while (address := re.search(rf"http://127.0.0.1:{self.port}/lab\?token=(\w+)", self.said.read_text())) is None:
            assert self.process.poll() is None, self.said.read_text()
            assert time.monotonic() < until, self.said.read_text()
            time.sleep(0.2)
        self.token = address[1]


def wrong_kernel(folder: Path) -> Path:
    """Make a foreign kernel that calls itself python3, as other installations on a machine may have."""
    spec = folder / "foreign" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": ["/bin/false"], "display_name": "foreign", "language": "python"}))
    return folder / "foreign"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    running = Lab(tmp_path_factory.mktemp("lab"))
    try:
        running.await_start()
        yield running
    finally:
        running.process.terminate()
        running.process.wait(60)


def setting(lab: Lab, plugin: str) -> dict:
    """Return what a page gets as this plugin's defaults."""
    schema = json.loads(lab.get(f"/lab/api/settings/{plugin}"))["schema"]
    return {name: value.get("default") for name, value in schema["properties"].items()}


def page_config(lab: Lab) -> dict:
    return json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', lab.get("/lab"), re.S)[1])


def test_it_shows_the_notebooks_folder_from_any_working_folder(lab):
    assert [entry["name"] for entry in json.loads(lab.get("/api/contents"))["content"]] == ["here.ipynb"]


def test_no_news_and_no_updates_are_looked_for(lab):
    notification = setting(lab, "@jupyterlab/apputils-extension:notification")
    assert (notification["fetchNews"], notification["checkForUpdates"]) == ("false", False)
    assert page_config(lab)["news"] == {"disabled": True}


def test_the_extension_manager_is_off_and_cannot_install(lab):
    assert setting(lab, "@jupyterlab/extensionmanager-extension:plugin")["enabled"] is False
    assert page_config(lab)["extensionManager"]["can_install"] is False


def test_closing_a_notebook_stops_its_kernel(lab):
    assert setting(lab, "@jupyterlab/notebook-extension:tracker")["kernelShutdown"] is True


def test_the_only_kernel_is_the_python_that_runs_labkit(lab):
    kernels = json.loads(lab.get("/api/kernelspecs"))
    assert (list(kernels["kernelspecs"]), kernels["default"]) == (["python3"], "python3")
    assert kernels["kernelspecs"]["python3"]["spec"]["argv"][0] == sys.executable


def test_a_kernel_runs_in_that_python_over_an_encrypted_connection(lab):
    kernel = json.loads(lab.ask("/api/kernels", b"{}"))
    address = f"ws://127.0.0.1:{lab.port}/api/kernels/{kernel['id']}/channels?token={lab.token}"
    header = {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "s", "version": "5.4"}
    content = {"code": "import sys; print(sys.executable)", "silent": False}
    connection = websocket.create_connection(address, timeout=60)
    try:
        question = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        connection.send(json.dumps(question))
        while (answer := json.loads(connection.recv()))["header"]["msg_type"] != "stream":
            pass
    finally:
        connection.close()
    assert answer["content"]["text"] == sys.executable + "\n"
    assert "without encryption" not in lab.said.read_text()


def test_it_starts_without_a_word_but_its_address(tmp_path):
    lab = Lab(tmp_path)
    lab.await_start()
    lab.process.send_signal(signal.SIGTERM)
    assert lab.process.wait(60) == 0
    said = lab.said.read_text()
    assert not re.search(r"^\[[WEI] ", said, re.M), said
    assert "Traceback" not in said
    with pytest.raises(OSError, match="refused"):
        lab.get("/api/status")


def test_a_port_that_is_taken_is_an_error_and_not_another_port(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        notebooks = tmp_path / "notebooks"
        notebooks.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(notebooks), str(taken.getsockname()[1])],
            env={**os.environ, "LABKIT_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode != 0
    assert "not available" in done.stderr


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(SettingError, match="not a folder"):
        jupyterlab.start(tmp_path / "nowhere")


def test_settings_of_two_python_environments_lie_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    mine = jupyterlab.settings_folder()
    monkeypatch.setattr("sys.prefix", "/another/venv")
    assert jupyterlab.settings_folder() != mine


def test_settings_changed_by_hand_are_put_right(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    overrides = jupyterlab.settings_folder() / "settings" / "overrides.json"
    good = overrides.read_text()
    overrides.write_text("{}")
    jupyterlab.settings_folder()
    assert overrides.read_text() == good
