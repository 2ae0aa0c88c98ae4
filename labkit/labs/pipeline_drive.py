"""What a pipeline answers, measured: many requests at a time that keep all its stages supplied, or one alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from threading import Event
from time import perf_counter

from labkit.errors import MeasureError
from labkit.labs.pipeline_load import Load, PipelineLoad
from labkit.labs.specimen import Cut, Specimen
from labkit.sharding.pipeline import Pipeline

__all__ = ["alone_ms", "drive", "in_flight", "there_and_back"]

_LEAST = 4
_PATIENCE_S = 10.0
_LOOK_S = 0.02
_ALONE, _ALONE_S = 10, 0.6


def in_flight(stages: int) -> int:
    """Requests that keep so many stages busy: two in each, and one on its way."""
    return 2 * stages + 1


def drive(found: Specimen, pipeline: Pipeline, cut: Cut, seconds: float, stop: Event) -> float:
    """Rows per second of an open pipeline in a closed loop; requests are one microbatch each.

    Counted from answer to answer, once the pipeline is full, so that a short run is not blurred by its ends. On a
    machine too busy for a handful of answers it goes on until it has them; raises `MeasureError` when it has waited
    long enough.
    """
    rows, many = cut.problem.rows, in_flight(len(cut.plan))
    cursor, until_s = pipeline.records.requests_since(0)[1], perf_counter() + seconds + _PATIENCE_S
    ends: list[float] = []
    with PipelineLoad(pipeline, found.rows, Load(rows=rows, in_flight=many)) as load:
        while not stop.wait(_LOOK_S) and perf_counter() < until_s:
            load.check()
            ends = _ends(pipeline, cursor)[many - 1 :]
            if len(ends) > _LEAST and ends[-1] - ends[0] >= seconds:
                break
    if len(ends) < 2:
        raise MeasureError("the pipeline answered next to nothing", "Run it on a machine that is less busy.")
    return rows * (len(ends) - 1) / (ends[-1] - ends[0])


def _ends(pipeline: Pipeline, cursor: int) -> list[float]:
    return [row.finished_s for row in pipeline.records.requests_since(cursor)[0] if row.outcome == "ok"]


def alone_ms(found: Specimen, pipeline: Pipeline, rows: int) -> float:
    """Milliseconds of a request of so many rows while there is no other: the median of ten, or of what 0.6 s allow."""
    payload, begun_s = found.rows(rows), perf_counter()
    seen_s: list[float] = []
    while len(seen_s) < _ALONE and (len(seen_s) < 2 or perf_counter() < begun_s + _ALONE_S):
        sent_s = perf_counter()
        pipeline.submit(payload).result(60)
        seen_s.append(perf_counter() - sent_s)
    return 1000 * median(seen_s)


def there_and_back(
    names: Sequence[str], measure: Callable[[str], float], stop: Event, rounds: int = 1
) -> dict[str, list[float]]:
    """Measure each name in turns, A B C C B A, so that a machine that drifts favours none.

    Raises `MeasureError` when it is stopped half-way.

    >>> there_and_back(["a", "b"], {"a": 1.0, "b": 2.0}.__getitem__, Event())
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    for name in [*names, *reversed(names)] * rounds:
        if stop.is_set():
            raise MeasureError("the measurement was stopped half-way", "Run it again to its end.")
        found[name].append(measure(name))
    return found
