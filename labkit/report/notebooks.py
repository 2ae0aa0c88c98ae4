"""Where the notebooks lie, and which one a name means."""

from __future__ import annotations

import re
from pathlib import Path

from labkit.errors import Unavailable, UnknownName

__all__ = ["find_notebook", "notebook_names", "notebooks_folder"]

_NUMBER = re.compile(r"^\d+_")


def notebooks_folder() -> Path:
    """The folder `notebooks/` of the working directory or of the checkout that the package runs from.

    Raises `Unavailable` where there is neither.
    """
    candidates = (Path.cwd() / "notebooks", Path(__file__).resolve().parents[2] / "notebooks")
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise Unavailable(f"There is no folder {candidates[0]}", "Run from the labkit checkout, or give a notebook's path.")


def notebook_names(folder: Path | None = None) -> tuple[str, ...]:
    """The names of the notebooks, in the order in which they are meant to be read."""
    return tuple(sorted(path.stem for path in (folder or notebooks_folder()).glob("*.ipynb")))


def find_notebook(name_or_path: str | Path, folder: Path | None = None) -> Path:
    """The file that `name_or_path` means: a path, a full name, or a name without its number.

    `90_report_batching`, `report_batching` and, where only a report is called so, `batching` all name
    `notebooks/90_report_batching.ipynb`. Raises `UnknownName` with the nearest name.
    """
    path = Path(name_or_path)
    if path.suffix == ".ipynb" and path.is_file():
        return path.resolve()
    folder = folder or notebooks_folder()
    names = notebook_names(folder)
    wanted = path.stem if path.suffix == ".ipynb" else str(name_or_path)
    matches = [name for name in names if wanted in _spellings(name)]
    if wanted in names:
        matches = [wanted]
    if len(matches) != 1:
        raise UnknownName.among("notebook", wanted, names)
    return (folder / f"{matches[0]}.ipynb").resolve()


def _spellings(name: str) -> tuple[str, str, str]:
    bare = _NUMBER.sub("", name)
    return name, bare, bare.removeprefix("report_")
