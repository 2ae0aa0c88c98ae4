"""Which software a number was measured with."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version

import torch

import labkit

__all__ = ["Versions", "versions"]


@dataclass(frozen=True, slots=True)
class Versions(Mapping[str, str]):
    """One version per name, readable as a record or as a mapping; an empty text means "not there".

    >>> now = versions()
    >>> now.torch == now["torch"] == dict(now)["torch"]
    True
    """

    labkit: str
    python: str
    torch: str
    numpy: str
    numba: str
    cuda: str
    hip: str
    platform: str

    def __getitem__(self, name: str) -> str:
        if name not in self:
            raise KeyError(name)
        return str(getattr(self, name))

    def __contains__(self, name: object) -> bool:
        return any(field.name == name for field in fields(self))

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


def versions() -> Versions:
    """Read the versions that matter for a measurement, without importing anything more."""
    return Versions(
        labkit=labkit.__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),
        numpy=_installed("numpy"),
        numba=_installed("numba"),
        cuda=torch.version.cuda or "",
        hip=torch.version.hip or "",
        platform=platform.platform(),
    )


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
