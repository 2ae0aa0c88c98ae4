"""Keeping what was measured: one file per chain, machine and software, with where it comes from."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from labkit.devices import cache_dir, find, versions
from labkit.errors import Unavailable

if TYPE_CHECKING:
    from labkit.sharding.profile import Profile

__all__ = ["Origin", "keep", "kept", "origin"]

FORMAT = 2  # raise it when the meaning of a stored number changes
_CALM_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Origin:
    """Where and how it was measured; `others_share` of the cores was used by other processes meanwhile (0 to 1)."""

    machine: str
    device_names: tuple[str, ...]
    threads: int
    versions: tuple[tuple[str, str], ...]
    measured_at: str
    others_share: float


def origin(device_ids: Sequence[str], others_share: float) -> Origin:
    """The facts of now."""
    return Origin(
        machine=platform.node(),
        device_names=tuple(find(device).name for device in device_ids),
        threads=torch.get_num_threads(),
        versions=tuple(sorted(dict(versions()).items())),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        others_share=round(others_share, 3),
    )


def kept(grounds: Sequence[str], device_ids: Sequence[str], kind: type[Profile]) -> Profile | None:
    """What was measured on the same grounds before; None if nothing was, or it cannot be read."""
    file = _file(grounds, device_ids)
    try:
        return None if file is None else _built(kind, json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):  # missing, cut short, or of another version: measure again
        return None


def keep(grounds: Sequence[str], device_ids: Sequence[str], fresh: Profile) -> Profile:
    """Write it down if the folder allows it, and return it; a reader never sees half a file.

    What was measured while others had the cores serves now, but is not kept for later.
    """
    file = _file(grounds, device_ids)
    if file is None or fresh.origin.others_share > _CALM_SHARE:
        return fresh
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(asdict(fresh)), encoding="utf-8")
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
    return fresh


def _file(grounds: Sequence[str], device_ids: Sequence[str]) -> Path | None:
    now = origin(device_ids, 0.0)
    facts = (str(FORMAT), *grounds, now.machine, *now.device_names, str(now.threads), str(now.versions))
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:20]
    try:
        return cache_dir() / "profiles" / f"{digest}.json"
    except Unavailable:
        return None


def _built(kind: type[Profile], stored: dict[str, Any]) -> Profile:
    from labkit.sharding.link import Link
    from labkit.sharding.problem import Tied

    plain = {item.name: _tuples(stored[item.name]) for item in fields(kind)}
    plain["tied"] = tuple(Tied(tie["weight_bytes"], tuple(tie["layers"])) for tie in stored["tied"])
    plain["links"] = tuple(tuple(Link(**link) for link in row) for row in stored["links"])
    plain["origin"] = Origin(**{name: _tuples(value) for name, value in stored["origin"].items()})
    return kind(**plain)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
