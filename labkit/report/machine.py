"""What the machine offers: devices, memory, a browser, folders to write to, disk and ports."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

from labkit.devices import Device, attached, cache_dir, memory_free_bytes
from labkit.devices.memory import gpu_fraction
from labkit.errors import Unavailable
from labkit.report.finding import Finding

__all__ = ["check_browser", "check_devices", "check_disk", "check_folders", "check_gpu_build", "check_ports", "gib"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_APPLICATIONS = ("/Applications/Google Chrome.app", "/Applications/Chromium.app", "/Applications/Microsoft Edge.app")
_GIB = 2**30


def gib(size_bytes: float) -> str:
    """Write bytes for a person.

    >>> gib(3 * 2**30)
    '3.0 GiB'
    """
    return f"{size_bytes / _GIB:.1f} GiB"


def check_devices() -> tuple[Finding, ...]:
    """Name the devices and warn where little memory is left."""
    gpu_fraction()  # raises where LABKIT_GPU_FRACTION makes no sense, card or not
    return tuple(_device(device) for device in attached())


def check_gpu_build() -> Finding:
    """Warn of an NVIDIA card that this PyTorch cannot use."""
    usable = [device.id for device in attached() if device.kind != "cpu"]
    card = Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None
    if card and not usable:
        remedy = "Install the CUDA build of torch (README, On a GPU), or check the driver with nvidia-smi."
        return Finding("accelerator", "warn", "this machine has an NVIDIA card that PyTorch does not see", remedy)
    return Finding("accelerator", "ok", ", ".join(usable) or "none attached; everything runs on the CPU")


def check_browser() -> Finding:
    """Look for a browser that the browser tests can drive."""
    found = _browser()
    driver = importlib.util.find_spec("playwright") is not None
    if not found:
        remedy = "Install one: apt-get install chromium, or Google Chrome. Labs and reports work without it."
        return Finding("browser", "warn", "no Chromium or Chrome; only the browser tests need it", remedy)
    return Finding("browser", "ok", f"{found}; playwright is {'' if driver else 'not '}installed")


def check_folders() -> tuple[Finding, ...]:
    """Write a file in each folder that labkit keeps things in."""
    here = Path.cwd()
    places: dict[str, Callable[[], Path]] = {
        "cache folder": cache_dir,
        "working folder": lambda: here,
        "results folder": lambda: here / "results",
        "reports folder": lambda: here / "reports",
    }
    return tuple(_folder(name, place) for name, place in places.items())


def check_disk() -> Finding:
    """See whether weights, results and reports have room."""
    folder = cache_dir()
    free = shutil.disk_usage(folder).free
    detail = f"{gib(free)} free at {folder}"
    remedy = "Free some space, or set LABKIT_CACHE to a folder on another disk."
    if free < _GIB / 2:
        return Finding("disk", "fail", f"{detail}; at least 0.5 GiB is needed", remedy)
    return Finding("disk", "warn" if free < 2 * _GIB else "ok", detail, remedy)


def check_ports() -> tuple[Finding, ...]:
    """See whether JupyterLab can listen on this machine's own address."""
    if not _can_listen(0):
        remedy = "Allow programs to listen on 127.0.0.1 (a sandbox or a firewall forbids it)."
        return (Finding("ports", "fail", "no port of 127.0.0.1 can be opened", remedy),)
    if not _can_listen(8888):
        remedy = "Nothing to do: labkit lab takes the next free port, or the one that --port names."
        return (Finding("ports", "warn", "8888 is taken by another program", remedy),)
    return (Finding("ports", "ok", "127.0.0.1:8888 is free for JupyterLab"),)


def _device(device: Device) -> Finding:
    free = memory_free_bytes(device.id)
    detail = f"{device.name}, {gib(free)} of {gib(device.memory_bytes)} free, computes in {', '.join(device.dtypes)}"
    remedy = "Close other notebooks (Kernel, Shut Down All) or call labkit.devices.release()."
    return Finding(device.id, "warn" if free < _GIB else "ok", detail, remedy)


def _browser() -> str:
    named = os.environ.get("BROWSER_PATH", "")
    if named and Path(named).is_file():
        return named
    on_path = (shutil.which(name) for name in _BROWSERS)
    return next(filter(None, on_path), "") or next((app for app in _APPLICATIONS if Path(app).exists()), "")


def _folder(name: str, place: Callable[[], Path]) -> Finding:
    """Try to write a file there, or, if the folder is still to be made, in the nearest one above it."""
    try:
        folder = place()
        base = next(level for level in (folder, *folder.parents) if level.exists())
        with tempfile.TemporaryFile(dir=base):
            pass
    except (OSError, Unavailable) as error:
        detail = error.problem if isinstance(error, Unavailable) else f"{folder}: {error.strerror}"
        remedy = (
            "Set LABKIT_CACHE to a folder of yours." if name == "cache folder" else "Run labkit in a folder of yours."
        )
        return Finding(name, "fail", detail, remedy)
    return Finding(name, "ok", str(folder))


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
