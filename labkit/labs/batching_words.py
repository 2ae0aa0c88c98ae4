"""A study of batching policies in words, rows and points: what the report shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from labkit.labs.batching_study import CONTROL, Cell, Study
from labkit.labs.point import Point
from labkit.measure import LinearCurve, ResultRow

__all__ = ["KEY_COLUMNS", "POLICY_COLUMNS", "doubts", "key_rows", "points", "policy_rows", "result_rows"]

KEY_COLUMNS = ("number", "value", "class")
POLICY_COLUMNS = ("policy", "offered /s", "answered /s", "within the goal", "latency", "rows per batch", "holds")


def key_rows(study: Study) -> list[tuple[str, str, str]]:
    """The key numbers, each with its class."""
    line = LinearCurve.fit(study.curve.rows, study.curve.times_ms)
    cap = study.settings.cap
    best = study.best
    control = study.control_ratio()
    rows = [
        (f"highest rate tried that {best!r} held", f"{study.held_per_s(best):.0f} requests/s", "measured"),
        (f"the engine at saturation, {2 * cap} requests in flight", f"{study.closed_per_s:.1f} requests/s", "measured"),
        (f"the bare model in ready batches of up to {cap}", f"{study.bare_per_s:.1f} rows/s", "measured"),
        ("the engine's share of the bare model", f"{100 * study.closed_per_s / study.bare_per_s:.0f} %", "measured"),
        ("time of a batch", f"{line.base_ms:.1f} ms + {line.row_ms:.2f} ms per row", "measured, fitted"),
    ]
    if not math.isnan(control):
        rows.append(("control: greedy against itself, ratio of medians (should be 1)", f"{control:.2f}", "measured"))
    return rows


def policy_rows(study: Study) -> list[tuple[str, ...]]:
    """One row for each policy at each rate."""
    return [
        (
            cell.policy,
            f"{cell.rate_per_s:.0f}",
            f"{cell.achieved_per_s:.1f}",
            f"{100 * cell.attainment:.1f} %",
            str(cell.high),
            f"{cell.mean_batch:.1f}",
            "void" if any(run.void for run in cell.runs) else "yes" if cell.holds else "no",
        )
        for cell in study.cells
    ]


def result_rows(study: Study) -> list[ResultRow]:
    """Latency, throughput and attainment of every cell, for the results store."""
    settings = {**asdict(study.settings), "policies": ", ".join(study.settings.policies)}
    rows: list[ResultRow] = []
    for cell in study.cells:
        common: dict[str, Any] = {
            "name": "90_report_batching",
            "system": cell.policy,
            "number_class": "measured",
            "settings": {**settings, "rate_per_s": cell.rate_per_s},
            "seed": study.settings.seed,
            "device": study.device_name,
        }
        high = cell.high
        interval: dict[str, Any] = {"low": high.low_ms, "high": high.high_ms, "samples": high.samples}
        rows.append(ResultRow(metric=high.label, value=high.value_ms, unit="ms", **interval, **common))
        rows.append(ResultRow(metric="achieved_per_s", value=cell.achieved_per_s, unit="1/s", **common))
        rows.append(ResultRow(metric="attainment", value=cell.attainment, unit="share", **common))
    return rows


def points(study: Study) -> Iterator[Point]:
    """Latency at the highest level that all cells support, over the rate that was answered; one series a policy."""
    for cell in study.cells:
        if cell.policy != CONTROL and math.isfinite(cell.high.value_ms):
            yield Point(f"{cell.policy} (measured)", cell.achieved_per_s, cell.high.value_ms)
    for rate in sorted({cell.rate_per_s for cell in study.cells}):
        if rate < 0.98 * study.bare_per_s:
            level = _level(study.cells, rate)
            yield Point("ideal greedy (modelled)", rate, study.modelled_high_ms(rate, level))


def _level(cells: tuple[Cell, ...], rate: float) -> float:
    levels = [cell.high.level for cell in cells if cell.rate_per_s == rate and math.isfinite(cell.high.level)]
    return min(levels, default=50.0)


def doubts(study: Study) -> list[str]:
    """What keeps these numbers from being certain, a sentence each."""
    levels = sorted({cell.high.label for cell in study.cells})
    samples = min(cell.high.samples for cell in study.cells)
    said = [
        f"The smallest sample has {samples} requests, which supports {levels[0]}; a p99 needs 662 "
        f"(-p seconds={_seconds_for_p99(study):.0f} would bring them). 'Within the goal' counts every request anyway.",
        "The intervals behind each latency are for independent requests; neighbours in a queue are not independent.",
    ]
    void = [cell for cell in study.cells if any(run.void for run in cell.runs)]
    if void:
        reason = next(run.void for run in void[0].runs if run.void)
        said.append(f"{len(void)} of {len(study.cells)} cells are void and count as not held: {reason}.")
    return said


def _seconds_for_p99(study: Study) -> float:
    rarest = min(cell.rate_per_s for cell in study.cells)
    return math.ceil(662 / rarest * len(study.cells) / 10) * 10
