"""Stages that remember: a decoder's KV cache per sequence, and what rebuilds it after a loss.

    worker:       state of sequence 5 at stage 1, after 8 steps
    controller:   the 8 inputs that stage 1 has had for sequence 5

State never leaves its worker. The controller keeps what each stage was given (as Petals clients do), so a stage that
is lost is rebuilt by running its inputs again, in the new worker alone. When the boundaries have moved as well, nobody
has the inputs of the new stages; then the sequence's first inputs travel through the whole pipeline once more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["Behind", "Held", "History", "Rebuild", "Stateful", "States", "inner"]


class Stateful:
    """Marks a stage with state: `step(value, state) -> (output, state)`; `state` is None at a sequence's start.

    >>> Stateful(lambda value, state: (value, (state or 0) + 1)).step("x", 4)
    ('x', 5)
    """

    def __init__(self, step: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self.step = step


def inner(layer: Any) -> Any:
    """The module or function that a layer calls."""
    return layer.step if isinstance(layer, Stateful) else layer


class Behind(Exception):  # a state, told to the controller, never to a user
    """The worker's state of a sequence is not at the job's position."""


class Held:
    """A worker's state of one sequence: of each layer, how many steps it has seen and what it remembers."""

    __slots__ = ("_layers",)

    def __init__(self) -> None:
        self._layers: dict[int, tuple[int, Any]] = {}

    def position(self, number: int) -> int:
        """How many steps the layer has seen."""
        return self._layers[number][0] if number in self._layers else 0

    def run(self, number: int, layer: Stateful, value: Any, repeats: int) -> Any:
        """Run a layer on its state; all runs but the last, which only take time, on copies."""
        position, state = self._layers.get(number, (0, None))
        for _ in range(repeats - 1):
            layer.step(copy.deepcopy(value), copy.deepcopy(state))
        output, state = layer.step(value, state)
        self._layers[number] = position + 1, state
        return output


class States:
    """A worker's states by sequence."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}

    def fresh(self, sequence: int) -> Held:
        """Begin `sequence` anew."""
        self._held[sequence] = held = Held()
        return held

    def at(self, sequence: int, position: int, layers: Iterable[int]) -> Held:
        """The state of `sequence` before step `position`; raises `Behind` if one of `layers` is not there."""
        held = self._held.get(sequence) or self.fresh(sequence)
        if any(held.position(layer) != position for layer in layers):
            raise Behind
        return held

    def forget(self, sequence: int) -> None:
        """Let go of `sequence`."""
        self._held.pop(sequence, None)


class Rebuild(NamedTuple):
    """What to run to have the state again: from which layer, and on which inputs (the newest last)."""

    layer: int
    inputs: list[Any]
    whole: bool


class History:
    """The inputs that the stages of a pipeline have had for one sequence, by the layer at which each stage begins.

    >>> history = History()
    >>> for n, step in enumerate("ab"): history.add(0, n, step); history.add(4, n, step.upper())
    >>> history.rebuild(4, 2, "C")
    Rebuild(layer=4, inputs=['A', 'B', 'C'], whole=False)
    >>> history.rebuild(6, 2, "C", first_input="c")
    Rebuild(layer=0, inputs=['a', 'b', 'c'], whole=True)
    """

    def __init__(self) -> None:
        self._inputs: dict[int, list[Any]] = {}

    def add(self, layer: int, position: int, value: Any) -> None:
        """Note the input of step `position` of the stage that begins at `layer`, if all before it are known."""
        inputs = self._inputs.setdefault(layer, [])
        if len(inputs) == position:
            inputs.append(value)

    def replace(self, layer: int, values: list[Any]) -> None:
        """Note all inputs of the stage that begins at `layer`."""
        self._inputs[layer] = values

    def cut(self, position: int) -> None:
        """Forget what belongs to `position` and later: that step has failed."""
        for layer, inputs in self._inputs.items():
            self._inputs[layer] = inputs[:position]

    def rebuild(self, layer: int, position: int, value: Any, first_input: Any = None) -> Rebuild:
        """How a worker that is behind catches up before step `position`, whose input at `layer` is `value`."""
        inputs = self._inputs.get(layer, [])
        if len(inputs) >= position:
            return Rebuild(layer, [*inputs[:position], value], whole=False)
        return Rebuild(0, [*self._inputs[0][:position], first_input], whole=True)
