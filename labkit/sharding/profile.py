"""What a chain costs, measured: time per layer, bytes at each cut, weights and working memory.

measured = profile(chain, example)                          # seconds; kept in the cache folder
problem = measured.problem(["cpu", "cpu"], rows=4)          # on two workers
plan = partition(problem)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from labkit.devices import find
from labkit.devices.host import Busy
from labkit.errors import require
from labkit.sharding.chain import Chain
from labkit.sharding.footprint import value_bytes, working_bytes
from labkit.sharding.kept import Origin, keep, kept, origin
from labkit.sharding.link import Link, measure_link
from labkit.sharding.nested import leaves
from labkit.sharding.problem import Floats, Problem, Tied
from labkit.sharding.sample import cast, resized
from labkit.sharding.timing import layer_times

__all__ = ["Profile", "profile"]


@dataclass(frozen=True, slots=True)
class Profile:
    """The measured costs of L layers on D devices at B batch sizes.

    `layer_s` [D][B][L] seconds, `cut_bytes` [B][L + 1], `work_bytes` [B][L] (a layer's input, output and all between,
    at its fullest), `param_bytes` [L] without `tied`, `links` [D][D]. `refusals` are pairs of a cut and a reason.
    """

    names: tuple[str, ...]
    devices: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    layer_s: tuple[tuple[tuple[float, ...], ...], ...]
    cut_bytes: tuple[tuple[int, ...], ...]
    param_bytes: tuple[int, ...]
    work_bytes: tuple[tuple[int, ...], ...]
    tied: tuple[Tied, ...]
    refusals: tuple[tuple[int, str], ...]
    links: tuple[tuple[Link, ...], ...]
    dtype: str
    origin: Origin

    def layer_times(self, device: str, rows: int) -> Floats:
        """Seconds of each layer for so many rows; between two measured batch sizes on the line that joins them."""
        return self._at(self.layer_s[self._index(device)], rows)

    def problem(
        self,
        devices: Sequence[str],
        *,
        rows: int | None = None,
        memory_bytes: Sequence[float] = (),
        links: Link | Sequence[Sequence[Link]] | None = None,
        slowdown: Sequence[float] = (),
    ) -> Problem:
        """Pose the cutting problem for these devices, in this order, and microbatches of so many rows.

        A device may occur several times, for several workers on it. `slowdown` makes each one slower by a factor
        (such numbers are emulated, not measured). `links` replaces the measured ones. Default rows: the largest.

        Raises `UnknownName` for a device and `SettingError` for a batch size that were not measured.
        """
        rows = rows or self.batch_sizes[-1]
        slowdown = slowdown or [1.0] * len(devices)
        times = [self.layer_times(device, rows) * slow for device, slow in zip(devices, slowdown, strict=True)]
        places = [self._index(device) for device in devices]
        measured = [[self.links[source][target] for target in places] for source in places]
        return Problem(
            layer_s=np.array(times),
            cut_bytes=self._at(self.cut_bytes, rows),
            param_bytes=np.array(self.param_bytes, float),
            work_bytes=self._at(self.work_bytes, rows),
            memory_bytes=np.array(memory_bytes, float),
            links=measured if links is None else links,
            names=self.names,
            devices=_numbered(devices),
            tied=self.tied,
            refusals=dict(self.refusals),
            rows=rows,
        )

    def _at(self, table: Sequence[Sequence[float]], rows: int) -> Floats:
        sizes = self.batch_sizes
        require(
            sizes[0] <= rows <= sizes[-1],
            f"rows is {rows}, and batch sizes from {sizes[0]} to {sizes[-1]} were measured",
            f"Profile again with batch_sizes that include {rows}.",
        )
        return np.array([np.interp(rows, sizes, column) for column in np.array(table, float).T])

    def _index(self, device: str) -> int:
        found = find(device).id
        require(
            found in self.devices,
            f"{found!r} was not measured; {', '.join(self.devices)} were",
            f"Profile again with devices that include {found!r}.",
        )
        return self.devices.index(found)


def profile(
    chain: Chain,
    example: Any,
    devices: Sequence[str] = ("cpu",),
    batch_sizes: Sequence[int] = (1, 4, 16),
    dtype: torch.dtype | None = None,
    *,
    repeats: int = 5,
    remeasure: bool = False,
) -> Profile:
    """Measure a chain on each device, or read what was measured before with the same chain, software and machine.

    `example` is an input of any number of rows; they are repeated to make each batch size. `dtype` casts weights and
    floating inputs (None: as they are). The machine should be idle; `remeasure=True` replaces what is kept.

    Raises `UnknownName` for a device that is not attached.
    """
    ids = tuple(find(device).id for device in devices)
    sizes = tuple(sorted(set(batch_sizes)))
    require(bool(ids and sizes) and sizes[0] >= 1, f"devices {ids}, batch sizes {sizes}", "Give at least one of each.")
    require(repeats >= 1, f"repeats is {repeats}; it must be at least 1", "Five are enough on an idle machine.")
    shapes = [f"{leaf.dtype} {tuple(leaf.shape[1:])}" for leaf in leaves(example)]
    grounds = (chain.fingerprint(), *shapes, *ids, *map(str, sizes), str(dtype), str(repeats))
    found = None if remeasure else kept(grounds, ids, Profile)
    return found or keep(grounds, ids, _measured(chain, example, ids, sizes, dtype, repeats))


def _measured(
    chain: Chain, example: Any, ids: tuple[str, ...], sizes: tuple[int, ...], dtype: torch.dtype | None, repeats: int
) -> Profile:
    since = Busy.now()
    inputs = {rows: cast(resized(example, rows), dtype) for rows in sizes}
    bytes_by_size = [_sizes(chain, value, dtype) for value in inputs.values()]
    times = [layer_times(chain, inputs, device, dtype, repeats) for device in ids]
    own, tied = _weights(chain, dtype)
    return Profile(
        names=chain.names,
        devices=ids,
        batch_sizes=sizes,
        layer_s=tuple(tuple(tuple(taken[rows]) for rows in sizes) for taken in times),
        cut_bytes=tuple(cuts for cuts, _ in bytes_by_size),
        param_bytes=own,
        work_bytes=tuple(work for _, work in bytes_by_size),
        tied=tied,
        refusals=tuple(sorted(chain.refusals.items())),
        links=tuple(tuple(measure_link(source, target) for target in ids) for source in ids),
        dtype="as it is" if dtype is None else str(dtype).removeprefix("torch."),
        origin=origin(ids, since.others_share()),
    )


def _sizes(chain: Chain, value: Any, dtype: torch.dtype | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes at each cut, and of each layer's working memory; on the CPU, one layer at a time."""
    cuts, work = [value_bytes(value)], []
    for layer in range(len(chain)):
        value, needed = working_bytes(chain.taken(layer, layer + 1).to("cpu", dtype), value)
        cuts.append(value_bytes(value))
        work.append(needed)
    return tuple(cuts), tuple(work)


def _weights(chain: Chain, dtype: torch.dtype | None) -> tuple[tuple[int, ...], tuple[Tied, ...]]:
    """Each layer's own bytes, and the weights that several layers share."""
    users: dict[object, list[int]] = defaultdict(list)
    sizes: dict[object, int] = {}
    for layer in range(len(chain)):
        for key, size in chain.weights(layer, dtype).items():
            users[key].append(layer)
            sizes[key] = size
    own = Counter({layers[0]: 0 for layers in users.values()})
    for key, layers in users.items():
        if len(layers) == 1:
            own[layers[0]] += sizes[key]
    ties = [Tied(sizes[key], tuple(layers)) for key, layers in users.items() if len(layers) > 1]
    return tuple(own[layer] for layer in range(len(chain))), tuple(ties)


def _numbered(devices: Sequence[str]) -> tuple[str, ...]:
    """Tell several workers on one device apart.

    >>> _numbered(["cpu", "cuda:0", "cpu"])
    ('cpu#1', 'cuda:0', 'cpu#2')
    """
    seen: Counter[str] = Counter()
    names = []
    for device in devices:
        seen[device] += 1
        names.append(f"{device}#{seen[device]}" if devices.count(device) > 1 else device)
    return tuple(names)
