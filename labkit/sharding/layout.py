"""Which seats run which layers. A stage is a run of layers; a value between two layers knows only its next layer.

Since a worker can begin at any layer that it holds, a value that waits while the boundaries move needs no special
care: it goes to whoever has its next layer now, and continues from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.errors import require

__all__ = ["Layout", "check_boundaries", "first_layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Stage k has layers boundaries[k] to boundaries[k + 1] - 1 and runs on `seats[k]`.

    >>> layout = Layout((0, 2, 5), ((0,), (1, 2)))
    >>> [layout.stage_of(layer) for layer in range(5)], layout.layers_of(1)
    ([0, 0, 1, 1, 1], range(2, 5))
    """

    boundaries: tuple[int, ...]
    seats: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        rising = all(first < last for first, last in zip(self.boundaries, self.boundaries[1:], strict=False))
        require(
            rising and self.boundaries[:1] == (0,) and len(self.boundaries) == len(self.seats) + 1,
            f"boundaries are {self.boundaries} for {len(self.seats)} stages",
            "Give a rising row from 0 to the number of layers, one longer than there are stages.",
        )

    def __len__(self) -> int:
        """Number of stages."""
        return len(self.seats)

    def stage_of(self, layer: int) -> int:
        """The stage that runs `layer`."""
        return bisect_right(self.boundaries, layer) - 1

    def layers_of(self, stage: int) -> range:
        """The layers of `stage`."""
        return range(self.boundaries[stage], self.boundaries[stage + 1])

    def stage_at(self, seat: int) -> int | None:
        """The stage that runs on `seat`."""
        return next((stage for stage, seats in enumerate(self.seats) if seat in seats), None)

    def with_seats(self, stage: int, seats: tuple[int, ...]) -> Layout:
        """The same with other seats for `stage`."""
        return Layout(self.boundaries, (*self.seats[:stage], seats, *self.seats[stage + 1 :]))


def first_layout(layers: int, boundaries: Sequence[int] | None, replicas: Sequence[int] | int) -> Layout:
    """Number the seats of a new pipeline; without `boundaries` each layer is a stage. Raises `SettingError`.

    >>> first_layout(3, (0, 1, 3), [1, 2])
    Layout(boundaries=(0, 1, 3), seats=((0,), (1, 2)))
    """
    require(layers >= 1, "there are no stages", "Give at least one.")
    cuts = range(layers + 1) if boundaries is None else boundaries
    stages = len(cuts) - 1
    counts = [replicas] * stages if isinstance(replicas, int) else list(replicas)
    require(
        len(counts) == stages and all(count >= 1 for count in counts),
        f"replicas are {counts} for {stages} stages",
        "Give a count of at least 1 for each stage.",
    )
    numbers = iter(range(sum(counts)))
    found = check_boundaries(cuts, layers, stages)
    return Layout(found, tuple(tuple(next(numbers) for _ in range(count)) for count in counts))


def check_boundaries(boundaries: Sequence[int], layers: int, stages: int) -> tuple[int, ...]:
    """Return `boundaries` as a tuple if they cut so many layers into so many stages; raises `SettingError`.

    A stage may be empty here: one that is to be left out.
    """
    found = tuple(int(cut) for cut in boundaries)
    require(
        len(found) == stages + 1 and found[:1] == (0,) and found[-1] == layers and list(found) == sorted(found),
        f"boundaries {found} do not cut {layers} layers into {stages} stages",
        f"Give {stages + 1} rising numbers from 0 to {layers}.",
    )
    return found
