"""One stored number: what it is, what it was measured with, and where it came from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, get_args

from labkit.errors import require
from labkit.measure.metrics import DEFINITIONS_VERSION, NumberClass
from labkit.measure.provenance import Provenance

__all__ = ["COLUMNS", "ResultRow", "Setting"]

Setting: TypeAlias = str | int | float | bool | None

# The columns of the store and of its exports, in order, with their SQLite types. NULL in a value is nan.
COLUMNS: dict[str, str] = {
    "at_utc": "TEXT NOT NULL",
    "name": "TEXT NOT NULL",
    "system": "TEXT NOT NULL",
    "metric": "TEXT NOT NULL",
    "value": "REAL",
    "unit": "TEXT NOT NULL",
    "number_class": "TEXT NOT NULL",
    "low": "REAL",
    "high": "REAL",
    "samples": "INTEGER",
    "settings": "TEXT NOT NULL",
    "seed": "INTEGER",
    "device": "TEXT NOT NULL",
    "definitions_version": "TEXT NOT NULL",
    "git_revision": "TEXT NOT NULL",
    "git_dirty": "BOOLEAN",
    "machine": "TEXT NOT NULL",
    "cpu": "TEXT NOT NULL",
    "cores": "INTEGER NOT NULL",
    "threads": "INTEGER NOT NULL",
    "versions": "TEXT NOT NULL",
}


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One number with everything needed to believe and to repeat it.

    `name` is the lab or report that made it, `system` what was measured (a policy, a peer), `low`..`high` the interval
    (`nan`: none), `settings` plain values by name. The store fills in `at_utc` and `provenance` when they are left out.
    """

    name: str
    metric: str
    value: float
    unit: str
    number_class: NumberClass
    settings: Mapping[str, Setting] = field(default_factory=dict)
    seed: int | None = None
    device: str = "cpu"
    system: str = ""
    low: float = math.nan
    high: float = math.nan
    samples: int | None = None
    definitions_version: str = DEFINITIONS_VERSION
    at_utc: str = ""
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        require(bool(self.name and self.metric), "name or metric is empty", "Say which number of which lab this is.")
        require(
            self.number_class in get_args(NumberClass),
            f"number_class is {self.number_class!r}; it must be one of {', '.join(get_args(NumberClass))}",
            "Say where the number comes from.",
        )
        for name, value in self.settings.items():
            require(
                value is None or isinstance(value, str | int | float | bool),
                f"settings[{name!r}] is a {type(value).__name__}; it must be text, a number, a truth value or None",
                "Store its parts, or its repr.",
            )
        object.__setattr__(self, "settings", dict(self.settings))

    def cells(self) -> tuple[Any, ...]:
        """The row as plain values, one for each of `COLUMNS`; both blanks must have been filled in."""
        origin = self.provenance
        require(origin is not None and bool(self.at_utc), "the row has no provenance or time", "Use Store.add.")
        flat = {each.name: getattr(self, each.name) for each in fields(self)}
        flat |= {each.name: getattr(origin, each.name) for each in fields(Provenance)}
        flat |= {"settings": _json(self.settings), "versions": _json(dict(flat["versions"]))}
        return tuple(flat[column] for column in COLUMNS)

    @classmethod
    def of_cells(cls, cells: tuple[Any, ...]) -> ResultRow:
        """The row back from its cells."""
        flat: dict[str, Any] = dict(zip(COLUMNS, cells, strict=True))
        for column in ("value", "low", "high"):
            flat[column] = math.nan if flat[column] is None else flat[column]
        flat["git_dirty"] = None if flat["git_dirty"] is None else bool(flat["git_dirty"])
        flat["settings"] = json.loads(flat["settings"])
        flat["versions"] = tuple(sorted(json.loads(flat["versions"]).items()))
        origin = Provenance(**{each.name: flat.pop(each.name) for each in fields(Provenance)})
        return cls(**flat, provenance=origin)


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(dict(values), sort_keys=True, ensure_ascii=False)
