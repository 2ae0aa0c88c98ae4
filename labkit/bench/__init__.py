"""Benchmarks that set labkit beside public peers. Each prints a table and writes JSON; README.md says how they measure.

from labkit import bench

result = bench.run("batching", quick=True)
result.print()
result.write_json("batching.json")
"""

from __future__ import annotations

import sys
from importlib import import_module

from labkit.bench.result import BenchCheck, BenchResult, BenchRow
from labkit.errors import UnknownName

__all__ = ["BenchCheck", "BenchResult", "BenchRow", "names", "run"]

# By name, the module whose `run(quick, say)` measures; it is imported when it is asked for.
_MODULES = {"batching": "labkit.bench.batching", "sharding": "labkit.bench.sharding"}


def names() -> tuple[str, ...]:
    """The benchmarks that there are.

    >>> names()
    ('batching', 'sharding')
    """
    return tuple(_MODULES)


def run(name: str, quick: bool = False) -> BenchResult:
    """Run a benchmark and return its result; what is being done is said on standard error.

    Raises `UnknownName`, and `MeasureError` when labkit itself could not be measured. A goal that was missed, or a peer
    that could not be had, is part of the result.
    """
    if name not in _MODULES:
        raise UnknownName.among("benchmark", name, _MODULES)
    result: BenchResult = import_module(_MODULES[name]).run(quick, _say)
    return result


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
