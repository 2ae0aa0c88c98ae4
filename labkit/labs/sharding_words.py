"""A study of cuts in words, rows and points: what the report shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from statistics import median
from typing import Any

from labkit.labs.point import Point
from labkit.labs.sharding_losses import Loss
from labkit.labs.sharding_study import BUSY, CONTROL, WHOLE, Study, System
from labkit.measure import NumberClass, ResultRow

__all__ = [
    "KEY_COLUMNS",
    "LOSS_COLUMNS",
    "SYSTEM_COLUMNS",
    "doubts",
    "key_rows",
    "loss_rows",
    "points",
    "result_rows",
    "system_rows",
]

KEY_COLUMNS = ("number", "value", "class")
SYSTEM_COLUMNS = ("system", "layers", "modelled rows/s", "measured rows/s", "error", "one alone", "fullest worker")
LOSS_COLUMNS = ("fault", "stage", "noticed after", "replaced after", "longest wait for a result")

_NAME = "91_report_sharding"
_LOSS_FIELDS = ("noticed_ms", "replaced_ms", "gap_ms")


def key_rows(study: Study) -> list[tuple[str, str, str]]:
    """The key numbers, each with its class."""
    return [*_rate_rows(study), *_cost_rows(study), *_kill_rows(study)]


def _rate_rows(study: Study) -> list[tuple[str, str, str]]:
    best, rows = study.best, study.settings.rows
    apart = rows / best.cut.plan.bottleneck_s
    bound = rows / float(best.cut.problem.layer_s.min(axis=0).max())
    return [
        ("the whole model in one worker, all cores", _rate(study.system(WHOLE)), "measured"),
        (f"the fastest cut, same cores: {best.name} ({best.cut} layers)", _rate(best), "measured"),
        ("gain of the cut", _gain(study, best.name), "measured"),
        ("control: the whole model against itself (should be 1)", _gain(study, CONTROL), "measured"),
        ("the cut, expected from the layers' times", f"{best.cut.rows_per_s:.1f} rows/s", "modelled"),
        ("the cut, were each stage on a device of its own", f"{apart:.1f} rows/s", "modelled"),
        ("its longest layer alone: no cut answers more", f"{bound:.1f} rows/s", "bound"),
    ]


def _cost_rows(study: Study) -> list[tuple[str, str, str]]:
    whole, best = study.system(WHOLE), study.best
    problem = best.cut.problem
    alpha_us, mb_us = 1e6 * problem.alpha_s[0, -1], 1e12 / problem.bytes_per_s[0, -1]
    return [
        ("one microbatch alone, whole", f"{whole.alone_ms:.1f} ms", "measured"),
        ("one microbatch alone, cut", f"{best.alone_ms:.1f} ms", "measured"),
        ("the same, sum of stages and links", f"{1000 * best.cut.plan.latency_s:.1f} ms", "modelled"),
        ("a link", f"{alpha_us:.0f} µs, and {mb_us:.0f} µs for each MB", "measured, fitted"),
        ("weights and working memory, whole", f"{_memory_mb(whole):.0f} MB", "measured"),
        ("the same of the fullest worker, cut", f"{_memory_mb(best):.0f} MB", "measured"),
    ]


def _kill_rows(study: Study) -> list[tuple[str, str, str]]:
    kills = [loss for loss in study.losses.each if loss.fault == "kill"]
    return [
        (f"a killed worker is noticed after (median of {len(kills)})", _of(kills, "noticed_ms"), "measured"),
        ("and replaced after", _of(kills, "replaced_ms"), "measured"),
        ("longest wait for a result meanwhile", _of(kills, "gap_ms"), "measured"),
        ("longest wait for a result without a fault", f"{study.losses.calm_gap_ms:.0f} ms", "measured"),
    ]


def _rate(system: System) -> str:
    return f"{system.rows_per_s:.1f} rows/s ({min(system.rates):.1f} to {max(system.rates):.1f})"


def _gain(study: Study, name: str) -> str:
    pairs = study.pairs(name)
    return f"x{study.gain(name).value:.2f} (pairs from {min(pairs):.2f} to {max(pairs):.2f})"


def _memory_mb(system: System) -> float:
    return max(system.cut.plan.memory_bytes) / 1e6


def _of(losses: list[Loss], name: str) -> str:
    return f"{median(getattr(loss, name) for loss in losses):.0f} ms"


def system_rows(study: Study) -> list[tuple[str, ...]]:
    """One row for each system: what was expected and what came."""
    return [
        (
            system.name,
            str(system.cut),
            f"{system.cut.rows_per_s:.1f}",
            f"{system.rows_per_s:.1f}",
            f"{100 * system.error:+.0f} %",
            f"{system.alone_ms:.1f} ms",
            f"{_memory_mb(system):.0f} MB",
        )
        for system in study.systems
    ]


def loss_rows(study: Study) -> list[tuple[str, ...]]:
    """One row for each lost worker."""
    return [
        (
            "killed" if loss.fault == "kill" else "hung",
            str(loss.stage),
            f"{loss.noticed_ms:.0f} ms",
            f"{loss.replaced_ms:.0f} ms",
            f"{loss.gap_ms:.0f} ms",
        )
        for loss in study.losses.each
    ]


def points(study: Study) -> Iterator[Point]:
    """Rows per second over the number of stages, measured and modelled, for both ways to cut."""
    rows = study.settings.rows
    whole = study.system(WHOLE)
    for rule in ("best cut", "equal count"):
        for system in (whole, *[each for each in study.systems if each.name.endswith(rule)]):
            yield Point(f"{rule} (measured)", system.stages, system.rows_per_s)
    for system in (whole, *[each for each in study.systems if each.name.endswith("best cut")]):
        yield Point("these cores (modelled)", system.stages, system.cut.rows_per_s)
        yield Point("device each (modelled)", system.stages, rows / system.cut.plan.bottleneck_s)


def doubts(study: Study) -> list[str]:
    """What keeps these numbers from being certain, a sentence each."""
    pairs, losses = len(study.system(WHOLE).rates), study.losses
    said = []
    if study.others_share > BUSY / 2:
        said.append(
            f"Other programs used {100 * study.others_share:.0f} % of the cores when this began: "
            "do not quote these numbers, run it again on an idle machine."
        )
    gain = study.gain(study.best.name)
    interval = f"The 95 % interval of the gain is x{gain.low:.2f} to x{gain.high:.2f}."
    said += [
        f"Each system ran {pairs} times, in turns. {interval if pairs >= 4 else '-p rounds=2 brings an interval.'}",
        "All stages share this machine's cores, caches and memory. The model knows of the cores alone, so it is too "
        "high by what the rest costs; a device of its own for each stage was not measured.",
        f"{len(losses.each)} workers were lost, with one warm spare, and the pipeline was looked at each millisecond; "
        f"{losses.failed} of {losses.answered + losses.failed} requests failed.",
    ]
    return said


def result_rows(study: Study) -> list[ResultRow]:
    """Rows per second, latency and losses, for the results store."""
    common: dict[str, Any] = {"name": _NAME, "settings": asdict(study.settings), "device": study.device_name}
    found: list[ResultRow] = []
    for system in study.systems:
        here: dict[str, Any] = {**common, "system": system.name}
        rates = system.rates
        spread: dict[str, Any] = {"low": min(rates), "high": max(rates), "samples": len(rates)}
        modelled = system.cut.rows_per_s
        found += [
            _row("rows_per_s", system.rows_per_s, "1/s", "measured", **spread, **here),
            _row("rows_per_s", modelled, "1/s", "modelled", **here),
            _row("alone", system.alone_ms, "ms", "measured", **here),
        ]
    for loss in study.losses.each:
        here = {**common, "system": f"{study.best.name}, {loss.fault} {loss.stage}"}
        found += [_row(name[:-3], getattr(loss, name), "ms", "measured", **here) for name in _LOSS_FIELDS]
    return found


def _row(metric: str, value: float, unit: str, kind: NumberClass, **others: Any) -> ResultRow:
    return ResultRow(metric=metric, value=value, unit=unit, number_class=kind, **others)
