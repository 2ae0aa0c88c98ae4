"""One user of a device at a time, in the order in which they asked.

A device belongs to a machine, so the queue lies in the machine's temporary folder (or `$LABKIT_LEASES`), open to all
its users. Each one in the queue owns a numbered ticket file and a lock on it; the lowest locked number holds the
device. The operating system drops the locks of a process that ends, however it ends, so nobody waits for the dead.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.devices.attached import find
from labkit.errors import Unavailable

__all__ = ["Lease", "lease"]

_POLL_S = 0.05
_open_files: set[int] = set()


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to use a device, and how long it was waited for."""

    device_id: str
    waited_s: float


@contextmanager
def lease(
    device_id: str,
    *,
    on_place: Callable[[int], None] | None = None,
    timeout_s: float | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Lease]:
    """Wait in line for the device, then hold it until the block ends.

    `on_place` is told each new place in the queue (2: two are before you), and 0 when the device is yours. Every call
    queues anew, in the same process and thread too: a lease inside a lease of the same device waits for ever.

    Raises `Unavailable` when `timeout_s` has passed, `stop` was set, or the system has no file locks (Windows).

    >>> with lease("cpu", on_place=print) as held:
    ...     held.device_id
    0
    'cpu'
    """
    device = find(device_id)
    folder = _queue_folder(device.id)
    asked_s = time.perf_counter()
    file, ticket = _take_ticket(folder)
    try:
        _wait(device.id, folder, ticket, on_place, timeout_s, stop)
        yield Lease(device.id, time.perf_counter() - asked_s)
    finally:
        _give_back(file, folder / str(ticket))


def _wait(
    device_id: str,
    folder: Path,
    ticket: int,
    on_place: Callable[[int], None] | None,
    timeout_s: float | None,
    stop: threading.Event | None,
) -> None:
    patience = stop or threading.Event()
    asked_s, told = time.perf_counter(), -1
    while True:
        place = _place(folder, ticket)
        if on_place is not None and place != told:
            on_place(place)
        told = place
        if place == 0:
            return
        waited_s = time.perf_counter() - asked_s
        if patience.wait(_POLL_S):
            raise Unavailable(f"Stopped while waiting for {device_id}, at place {place} of its queue", "Run again.")
        if timeout_s is not None and waited_s > timeout_s:
            raise Unavailable(
                f"{device_id} was still in use after {waited_s:.1f} s (limit {timeout_s:g} s), place {place} in line",
                "Wait longer, or stop the run or notebook that holds it.",
            )


def _place(folder: Path, ticket: int) -> int:
    """Count the living tickets before this one."""
    return sum(_alive(folder / str(other)) for other in _tickets(folder) if other < ticket)


def _tickets(folder: Path) -> list[int]:
    return sorted(int(name) for name in os.listdir(folder) if re.fullmatch(r"\d+", name))


def _take_ticket(folder: Path) -> tuple[int, int]:
    """Draw the next number; numbers are never used twice, so throwing a dead ticket away cannot hit a new one."""
    door = _open_locked(folder / "door", wait=True)
    assert door is not None  # waiting always ends in a lock
    try:
        ticket = max([int(os.pread(door, 32, 0) or b"0"), *_tickets(folder)]) + 1
        os.pwrite(door, str(ticket).encode(), 0)
        # Locked under another name first: nobody ever sees a ticket without its lock and takes it for a dead one.
        draft = folder / f"draft-{ticket}"
        file = _open_locked(draft, wait=True)
        draft.rename(folder / str(ticket))
    finally:
        _close(door)
    assert file is not None
    return file, ticket


def _give_back(file: int, path: Path) -> None:
    path.unlink(missing_ok=True)
    _close(file)


def _alive(path: Path) -> bool:
    """Say whether somebody holds this ticket; the ticket of a dead process is thrown away."""
    try:
        file = _open_locked(path, wait=False, create=False)
    except FileNotFoundError:
        return False
    if file is None:
        return True
    _give_back(file, path)
    return False


def _open_locked(path: Path, *, wait: bool, create: bool = True) -> int | None:
    """Open a file and lock it; None if it is locked by another and `wait` is false."""
    if sys.platform == "win32":
        raise Unavailable("Windows has no file locks of the kind that a lease needs", "Use the device without a lease.")
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(file)
        return None
    _open_files.add(file)
    return file


def _close(file: int | None) -> None:
    if file is not None:
        _open_files.discard(file)
        os.close(file)


def _queue_folder(device_id: str) -> Path:
    root = Path(os.environ.get("LABKIT_LEASES") or Path(tempfile.gettempdir()) / "labkit-leases")
    folder = root / device_id.replace(":", "-")
    for level in (root, folder):
        if not level.is_dir():
            level.mkdir(parents=True, exist_ok=True)
            level.chmod(0o777)  # the next user of this machine stands in the same line
    return folder


def _forget_in_child() -> None:
    """A forked child shares its parent's locks; without this, a worker would keep a lease beyond its owner's end."""
    for file in _open_files:
        os.close(file)
    _open_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
