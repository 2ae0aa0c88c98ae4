"""Start JupyterLab on the notebooks, quiet, offline-clean, and apart from the user's own Jupyter.

All settings are written into one folder of labkit's cache, and JupyterLab is pointed there by `JUPYTER_CONFIG_DIR`, so
that the user's own Jupyter settings are neither read nor changed. The kernel "python3" is put first in the search path:
it is the Python that runs labkit, whatever other kernels the machine knows by that name.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from labkit.devices import cache_dir
from labkit.devices.allocator import ALLOCATOR_VARIABLES
from labkit.errors import require

__all__ = ["environment", "settings_folder", "start"]

_PATIENCE_S = 10.0

# What the pages of JupyterLab take as defaults: no news, no extension shop, a closed notebook frees its kernel.
_OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/extensionmanager-extension:plugin": {"enabled": False},
    "@jupyterlab/notebook-extension:tracker": {"kernelShutdown": True},
}

# What its server takes. A kernel without an open page is stopped after an hour: on a shared card it holds memory.
_SERVER = """\
import os

c = get_config()  # noqa: F821
c.LabApp.app_settings_dir = {settings!r}
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
c.LabApp.extension_manager = "readonly"
c.LabApp.log_level = "WARN"
c.ServerApp.answer_yes = True
c.ServerApp.allow_root = hasattr(os, "geteuid") and os.geteuid() == 0
c.KernelManager.transport_encryption = "auto"
c.KernelSpecManager.allowed_kernelspecs = {{"python3"}}
c.MappingKernelManager.cull_idle_timeout = 3600
c.MappingKernelManager.cull_interval = 300
"""


def start(notebooks: Path, port: int | None = None, browser: bool = True, extra_args: Sequence[str] = ()) -> int:
    """Run JupyterLab on the folder `notebooks` until it is stopped; return its exit code.

    Without `port` it takes 8888 or the next free one, with it that one or none. `extra_args` go to JupyterLab as they
    are. Ctrl-C stops it at once, kernels included.

    Raises `SettingError` when the folder does not exist.
    """
    folder = notebooks.expanduser().absolute()
    require(folder.is_dir(), f"{folder} is not a folder", "Name the folder with the notebooks.")
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.log_level=WARN", f"--ServerApp.root_dir={folder}"]
    if port is not None:
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        command.append("--no-browser")
    command += extra_args
    with subprocess.Popen(command, env=environment(), cwd=folder) as server:
        return _wait(server)


def environment() -> dict[str, str]:
    """Return this process's environment, turned towards labkit's own settings and kernel."""
    home = settings_folder()
    search = [str(home / "data"), os.environ.get("JUPYTER_PATH", "")]
    ours = {
        "JUPYTER_CONFIG_DIR": str(home),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_PATH": os.pathsep.join(filter(None, search)),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "user-settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    return {**ALLOCATOR_VARIABLES, **os.environ, **ours}


def settings_folder() -> Path:
    """Write the settings for this Python environment and return their folder."""
    environment_key = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    home = cache_dir() / "jupyterlab" / environment_key
    _write(home / "settings" / "overrides.json", json.dumps(_OVERRIDES, indent=2))
    _write(home / "jupyter_lab_config.py", _SERVER.format(settings=str(home / "settings")))
    _write(home / "data" / "kernels" / "python3" / "kernel.json", json.dumps(_kernel(), indent=2))
    return home


def _kernel() -> dict[str, object]:
    """Describe the Python that runs now as a kernel; frozen modules would make its debugger complain."""
    argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    metadata = {"debugger": True, "supported_encryption": ["curve"]}
    return {"argv": argv, "display_name": "Python 3 (labkit)", "language": "python", "metadata": metadata}


def _write(file: Path, text: str) -> None:
    """Replace the file in one step: another JupyterLab may be reading it."""
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)


def _wait(server: subprocess.Popen[bytes]) -> int:
    """Wait for the server's end; whoever stops this process stops the server, and no kernel is left behind."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    with suppress(KeyboardInterrupt):
        return server.wait()
    # A terminal sends Ctrl-C to the server as well, which then ends its kernels and itself; only when the signal came
    # to this process alone is it passed on.
    with suppress(subprocess.TimeoutExpired):
        return server.wait(_PATIENCE_S)
    server.terminate()
    return server.wait()
