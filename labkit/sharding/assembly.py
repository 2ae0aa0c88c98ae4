"""Putting a pipeline together: the one place where all its parts meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import require
from labkit.records import Recorder
from labkit.sharding.balance import Balancer
from labkit.sharding.carrier import Carrier, make_carrier
from labkit.sharding.cluster import Cluster
from labkit.sharding.conductor import Conductor
from labkit.sharding.crew import Crew
from labkit.sharding.layout import Layout
from labkit.sharding.ledger import Ledger
from labkit.sharding.pace import Pace
from labkit.sharding.patience import Expectations
from labkit.sharding.precision import resolved_dtypes
from labkit.sharding.replan import Replan
from labkit.sharding.settings import Settings
from labkit.sharding.state import Stateful
from labkit.sharding.traffic import Traffic

__all__ = ["Parts", "Wishes", "assemble"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is wanted of each stage; None where the default will do."""

    carrier: str | Cluster
    devices: Sequence[str] | None
    dtypes: Sequence[Any] | None
    slowdowns: Sequence[float] | None
    layer_s: Sequence[float] | None
    replan: Replan | None


@dataclass(frozen=True, slots=True)
class Parts:
    """What a pipeline is made of."""

    conductor: Conductor
    crew: Crew
    traffic: Traffic
    ledger: Ledger


def assemble(
    stages: Sequence[Any], layout: Layout, wishes: Wishes, settings: Settings, records: Recorder, name: str
) -> Parts:
    """Make all parts and join them; nothing runs yet. Raises `SettingError`."""
    devices = _per_stage("devices", wishes.devices, "cpu", layout)
    slowdowns = _per_stage("slowdowns", wishes.slowdowns, 1.0, layout)
    dtypes = resolved_dtypes(stages, wishes.dtypes, layout)
    workers = sum(len(seats) for seats in layout.seats) + settings.spares
    carrier = make_carrier(wishes.carrier, stages, dtypes, workers)
    ledger = Ledger(records)
    conductor = Conductor(carrier, ledger, settings.patience, name)
    crew = Crew(
        carrier,
        layout,
        devices,
        slowdowns=slowdowns,
        budget=settings.budget,
        pace=_pace(carrier, layout, settings, wishes),
        replan=wishes.replan,
        ask_for_worker=conductor.ask_for_worker,
    )
    carrier.on_drop(crew.forget_slot)
    stateful = [isinstance(stage, Stateful) for stage in stages]
    traffic = Traffic(crew, carrier.store, ledger, records, Expectations(settings.patience), stateful, settings)
    conductor.lead(crew, traffic)
    return Parts(conductor, crew, traffic, ledger)


def _pace(carrier: Carrier, layout: Layout, settings: Settings, wishes: Wishes) -> Pace:
    sizes = [ref.weights_bytes for ref in carrier.refs]
    balancer = None
    if settings.balancing is not None:
        balancer = Balancer(settings.balancing, layout.boundaries, sizes, wishes.layer_s)
    return Pace(layout, sizes, balancer)


def _per_stage(name: str, given: Sequence[Any] | None, default: Any, layout: Layout) -> Sequence[Any]:
    values = [default] * len(layout) if given is None else list(given)
    require(len(values) == len(layout), f"{len(values)} {name} for {len(layout)} stages", "Give one for each stage.")
    return values
