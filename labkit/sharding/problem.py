"""The cutting problem: what each layer costs on each device, and what each cut costs on each link.

    layers   0     1     2     3
           [...] [...] [...] [...]      a stage is a run of layers, on one device
           ^     ^     ^     ^     ^
    cuts   0     1     2     3     4    cut i lies before layer i; 0 is the input, 4 the output

Nothing here knows about models: a problem is a handful of arrays, measured by `profile` or written down by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from labkit.errors import require
from labkit.sharding.link import Link

__all__ = ["Problem", "Tied"]

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tied:
    """A weight that several layers use; a stage keeps one copy of it, however many of them it holds."""

    weight_bytes: float
    layers: tuple[int, ...]


FREE = Link()


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Everything that a partition depends on; D devices in their order, L layers.

    `layer_s` [D, L]: seconds of a layer for one microbatch of `rows`. `cut_bytes` [L + 1]: what crosses each cut.
    `param_bytes` [L]: a layer's own weights, those in `tied` left out. `work_bytes` [L]: what a layer needs beside
    weights while it runs. `memory_bytes` [D]: each device's cap. `links`: one for all pairs, or [D][D].
    `allowed` [L + 1]: where a cut may lie; `refusals` says why not. Arrays that are left out are zeros (no caps, every
    cut allowed). Lists are taken as well.

    >>> Problem([[1, 2, 3], [2, 4, 6]]).stage_s(1, 0, 2)
    6.0
    """

    layer_s: Floats
    cut_bytes: Floats = field(default_factory=_none)
    param_bytes: Floats = field(default_factory=_none)
    work_bytes: Floats = field(default_factory=_none)
    memory_bytes: Floats = field(default_factory=_none)
    links: Link | Sequence[Sequence[Link]] = FREE
    allowed: Flags = field(default_factory=lambda: np.zeros(0, bool))
    names: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    tied: tuple[Tied, ...] = ()
    refusals: Mapping[int, str] = field(default_factory=dict)
    rows: int = 1
    prefix_s: Floats = field(init=False, repr=False)
    alpha_s: Floats = field(init=False, repr=False)
    bytes_per_s: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        times = np.array(self.layer_s, float)
        require(
            times.ndim == 2 and times.size > 0,
            f"layer_s has the shape {times.shape}",
            "Give one row per device and one column per layer.",
        )
        self._set("layer_s", times)
        devices, layers = times.shape
        for name, size in (("cut_bytes", layers + 1), ("param_bytes", layers), ("work_bytes", layers)):
            self._set(name, _filled(name, getattr(self, name), size, 0.0))
        self._set("memory_bytes", _filled("memory_bytes", self.memory_bytes, devices, inf))
        self._set("allowed", _allowed(self.allowed, self.refusals, layers))
        self._set("names", tuple(self.names) or tuple(str(layer) for layer in range(layers)))
        self._set("devices", tuple(self.devices) or tuple(str(device) for device in range(devices)))
        self._set("prefix_s", np.concatenate([np.zeros((devices, 1)), np.cumsum(times, axis=1)], axis=1))
        self._set("alpha_s", self._of_links(lambda link: link.alpha_s))
        self._set("bytes_per_s", self._of_links(lambda link: link.bytes_per_s))
        self._check()

    def __len__(self) -> int:
        """Number of layers."""
        return int(self.layer_s.shape[1])

    def stage_s(self, device: int, first: int, last: int) -> float:
        """Seconds of layers first..last-1 on a device, for one microbatch."""
        return float(self.prefix_s[device, last] - self.prefix_s[device, first])

    def stage_bytes(self, first: int, last: int) -> float:
        """Memory of a stage with layers first..last-1: its weights, and the working memory of its hungriest layer."""
        weights = self.param_bytes[first:last].sum()
        weights += sum(tie.weight_bytes for tie in self.tied if any(first <= layer < last for layer in tie.layers))
        return float(weights + self.work_bytes[first:last].max())

    def link_s(self, source: int, target: int, cut: int) -> float:
        """Seconds that what crosses `cut` takes from one device to another."""
        return float(self.alpha_s[source, target] + self.cut_bytes[cut] / self.bytes_per_s[source, target])

    def _set(self, name: str, value: object) -> None:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        object.__setattr__(self, name, value)

    def _of_links(self, read: Callable[[Link], float]) -> Floats:
        devices = len(self.layer_s)
        if isinstance(self.links, Link):
            return np.full((devices, devices), read(self.links))
        sizes = {len(self.links), *(len(row) for row in self.links)}
        require(
            sizes == {devices},
            f"links has rows of {sorted(sizes)} for {devices} devices",
            "Give one Link, or a row per device with a Link to each.",
        )
        return np.array([[read(link) for link in row] for row in self.links])

    def _check(self) -> None:
        devices, layers = self.layer_s.shape
        for name in ("layer_s", "cut_bytes", "param_bytes", "work_bytes"):
            values = getattr(self, name)
            require(
                bool(np.isfinite(values).all() and (values >= 0).all()),
                f"{name} holds a number that is negative or not finite",
                "Give seconds and bytes from 0 up.",
            )
        require(bool((self.memory_bytes > 0).all()), "A device has a cap of 0 bytes", "Leave that device out.")
        require(len(self.names) == layers, f"{len(self.names)} names for {layers} layers", "Name each layer.")
        require(len(self.devices) == devices, f"{len(self.devices)} names for {devices} devices", "Name each device.")
        require(self.rows >= 1, f"rows is {self.rows}; it must be at least 1", "Give the rows of a microbatch.")
        places = [layer for tie in self.tied for layer in tie.layers]
        require(all(0 <= place < layers for place in places), "A tied weight names a layer that is not there", "")


def _filled(name: str, given: Iterable[float], size: int, default: float) -> Floats:
    values = np.array(given, float)
    if values.size == 0:
        return np.full(size, default)
    require(
        values.shape == (size,),
        f"{name} has the shape {values.shape}; it must be ({size},)",
        "cut_bytes counts the input and the output, so it has one number more than there are layers.",
    )
    return values


def _allowed(given: Iterable[bool], refusals: Mapping[int, str], layers: int) -> Flags:
    flags = np.array(given, bool)
    flags = flags if flags.size else np.ones(layers + 1, bool)
    require(flags.shape == (layers + 1,), f"allowed has {flags.size} entries", f"Give {layers + 1}, one for each cut.")
    flags[[cut for cut in refusals if 0 <= cut <= layers]] = False
    flags[[0, layers]] = True
    return flags
