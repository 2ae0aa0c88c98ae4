"""How fast the stages are now, and what follows from it: numbers for people, and moves of boundaries."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.sharding.balance import Balancer, best_boundaries
from labkit.sharding.hand import Flight
from labkit.sharding.job import Done
from labkit.sharding.layout import Layout
from labkit.sharding.meter import Meter
from labkit.sharding.replan import Survivor

__all__ = ["Pace"]


class Pace:
    """Meters the steps of the present layout and asks the balancer, if there is one."""

    def __init__(self, layout: Layout, layer_bytes: Sequence[int], balancer: Balancer | None) -> None:
        self.meter = Meter(layout)
        self._layout, self._layer_bytes, self._balancer = layout, layer_bytes, balancer

    def add(self, flight: Flight, done: Done) -> None:
        """Take in a step, if it ran the whole of a present stage."""
        stage, layout = flight.key.stage, self._layout
        if stage < len(layout) and range(flight.first, flight.last) == layout.layers_of(stage):
            self.meter.add(stage, done.layer_s, done.started_s, done.finished_s)

    @property
    def is_due(self) -> bool:
        """Whether it is time to ask for something `better`: the window is full."""
        return self._balancer is not None and self.meter.is_full(self._balancer.settings.window_jobs)

    def better(self) -> tuple[int, ...] | None:
        """Boundaries that are worth a move; None to stay."""
        balancer, layout = self._balancer, self._layout
        if balancer is None or len(layout) == 1:
            return None
        return balancer.observe(self.meter.window(tuple(len(seats) for seats in layout.seats)))

    def pause(self) -> None:
        """Move nothing for a while: something was lost."""
        self.meter.restart()
        if self._balancer is not None:
            self._balancer.pause()

    def adopt(self, layout: Layout) -> None:
        """Meter another layout from now on."""
        kept = [stage for stage, numbers in enumerate(self._layout.seats) if numbers in layout.seats]
        if layout.boundaries != self._layout.boundaries and self._balancer is not None:
            self._balancer.adopt(layout.boundaries, kept)
        if layout.boundaries != self._layout.boundaries:
            self.meter = Meter(layout)
        self._layout = layout

    def layer_s(self) -> tuple[float, ...]:
        """The expected seconds of each layer where it runs now; empty before they are known."""
        return self._balancer.layer_s() if self._balancer is not None else ()

    def best_for(self, survivors: tuple[Survivor, ...]) -> Sequence[int]:
        """The best cut for these stages by the times measured so far; by the weights' bytes before that."""
        balancer = self._balancer
        if balancer is not None and balancer.base_s is not None:
            factors = balancer.factors([len(seats) for seats in self._layout.seats])
            return best_boundaries(balancer.base_s, factors[[one.stage for one in survivors]])
        costs = [size + 1 for size in self._layer_bytes]
        return best_boundaries(costs, [one.slowdown / one.replicas for one in survivors])
