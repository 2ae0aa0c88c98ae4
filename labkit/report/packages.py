"""What is installed, held against what labkit needs and against the set that it was tested with."""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import labkit
from labkit.report.finding import Finding

__all__ = ["check_needed", "check_python", "check_tested", "check_widgets", "pinned_versions"]

_REPOSITORY = Path(labkit.__file__).parents[1]


def check_python() -> Finding:
    """Tell which Python this is, and warn where it has no environment of its own."""
    detail = f"{platform.python_version()} in {sys.prefix}"
    if sys.prefix == sys.base_prefix and not (Path(sys.prefix) / "conda-meta").is_dir():
        remedy = "Use an environment: python3 -m venv .venv, or conda env create -f environment.yml."
        return Finding("Python", "warn", f"{detail}, outside any environment", remedy)
    return Finding("Python", "ok", detail)


def check_needed() -> Finding:
    """See whether every package that the labs need is there, in a version that they can use."""
    needed = [Requirement(text) for text in distribution("labkit").requires or ()]
    lab = [need for need in needed if need.marker is None or need.marker.evaluate({"extra": "lab"})]
    faults = [fault for need in lab if (fault := _fault(need))]
    if faults:
        return Finding("packages", "fail", "; ".join(faults), "Run: pip install 'labkit[lab]'")
    return Finding("packages", "ok", f"all {len(lab)} that the labs need")


def check_tested() -> Finding:
    """Compare the installed versions with those of constraints.txt."""
    tested = pinned_versions(_REPOSITORY / "constraints.txt")
    if not tested:
        return Finding(
            "tested set",
            "warn",
            "constraints.txt does not come with an installed wheel, so versions were not compared",
            "Compare with constraints.txt of the repository if something behaves oddly.",
        )
    installed = {name: _installed(name) for name in tested}
    odd = [f"{name} {has} (tested {tested[name]})" for name, has in installed.items() if has and has != tested[name]]
    if odd:
        shown = ", ".join(odd[:4]) + (f" and {len(odd) - 4} more" if len(odd) > 4 else "")
        return Finding("tested set", "warn", shown, "Run: pip install -e '.[lab]' -c constraints.txt")
    return Finding("tested set", "ok", f"{sum(map(bool, installed.values()))} packages are the tested versions")


def check_widgets() -> Finding:
    """See whether the widgets' two halves, in the kernel and in JupyterLab's pages, belong together."""
    faults = [fault for text in _requires("ipywidgets") if (fault := _fault(Requirement(text)))]
    pages = {name: _page_version(name) for name in ("@jupyter-widgets/jupyterlab-manager", "anywidget")}
    faults += [f"JupyterLab has no extension {name}" for name, found in pages.items() if not found]
    kernel, page = _installed("anywidget"), pages["anywidget"]
    if page and kernel != page:
        faults.append(f"anywidget is {kernel or 'missing'} in the kernel and {page} in JupyterLab")
    if faults:
        remedy = "Run: pip install --force-reinstall ipywidgets jupyterlab_widgets anywidget -c constraints.txt"
        return Finding("widgets", "fail", "; ".join(faults), remedy)
    return Finding("widgets", "ok", f"ipywidgets {_installed('ipywidgets')} and anywidget {kernel}, in both halves")


def pinned_versions(constraints: Path) -> dict[str, str]:
    """Read the pinned versions by package name; empty where the file is not there.

    >>> pinned_versions(Path("nowhere/constraints.txt"))
    {}
    """
    try:
        lines = constraints.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pins = (line.partition("#")[0].strip().partition("==") for line in lines)
    return {canonicalize_name(name): pin.strip() for name, _, pin in pins if pin}


def _fault(need: Requirement) -> str:
    """Say what is wrong with the installed version; empty if nothing is, or the need is not for this machine."""
    if need.marker is not None and not need.marker.evaluate({"extra": "lab"}):
        return ""
    has = _installed(need.name)
    if not has:
        return f"{need.name} is missing"
    return "" if need.specifier.contains(has, prereleases=True) else f"{need.name} is {has}, needed {need.specifier}"


def _installed(name: str) -> str:
    """Return the public part of the installed version ("2.13.0" of "2.13.0+cpu"); empty if it is not installed."""
    try:
        return Version(version(name)).public
    except PackageNotFoundError:
        return ""


def _requires(name: str) -> Iterable[str]:
    try:
        return [text for text in distribution(name).requires or () if not re.search(r"extra\s*==", text)]
    except PackageNotFoundError:
        return [name]


def _page_version(extension: str) -> str:
    """Return the version of the extension that JupyterLab's pages would load; empty if there is none."""
    from jupyter_core.paths import jupyter_path

    for folder in jupyter_path("labextensions"):
        try:
            return str(json.loads((Path(folder) / extension / "package.json").read_text(encoding="utf-8"))["version"])
        except (OSError, ValueError, KeyError):
            continue
    return ""
