"""Recorded traffic: read the public trace formats, with their quirks, and replay it at any speed.

Two formats are known, and `read_trace` tells them apart by their first line:

* Azure LLM inference 2023, csv: `TIMESTAMP` (a date and time in steps of 100 ns), `ContextTokens`, `GeneratedTokens`.
  Real services fall silent: the code trace has minutes without any request (`Trace.gaps` lists them).
* Mooncake, jsonl: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (512-token prefix blocks). In the
  conversation trace the timestamps are the ticks of a 3 s clock; replayed raw they would be one burst every 3 s, so
  the arrivals of one tick are spread over it, at random, and `Trace.spread_s` says so.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from labkit.errors import TraceError, require
from labkit.workloads.arrivals import FloatArray, Replay

__all__ = ["Trace", "read_azure", "read_mooncake", "read_trace"]

IntArray: TypeAlias = npt.NDArray[np.int64]
Value = TypeVar("Value")
Number = TypeVar("Number", bound=np.generic)

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests as they were recorded, in order of arrival; every array has the shape `[requests]`.

    `at_s` counts seconds from the first request. `blocks` are the prefix blocks of each request (empty where the
    format has none). `spread_s` is 0 when the times are as recorded; otherwise the recording clock ticked only every
    `spread_s` seconds, and the arrivals within a tick were placed at random by the reader.
    """

    name: str
    at_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    blocks: tuple[tuple[int, ...], ...] = ()
    spread_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """Seconds from the first request to the last."""
        return float(self.at_s[-1])

    @property
    def rate_per_s(self) -> float:
        """Mean requests per second; `nan` for a trace without extent."""
        return (len(self.at_s) - 1) / self.duration_s if self.duration_s > 0 else float("nan")

    @property
    def cv(self) -> float:
        """Coefficient of variation of the gaps between arrivals: 1 for Poisson, more for bursts."""
        gaps_s = np.diff(self.at_s)
        return float(gaps_s.std() / gaps_s.mean()) if gaps_s.size and gaps_s.mean() > 0 else float("nan")

    def gaps(self, longer_than_s: float = 60.0) -> tuple[tuple[float, float], ...]:
        """The empty stretches `(from_s, to_s)` without a request that are longer than `longer_than_s`."""
        (where,) = np.nonzero(np.diff(self.at_s) > longer_than_s)
        return tuple((float(self.at_s[index]), float(self.at_s[index + 1])) for index in where)

    def arrivals(self, speed: float = 1.0, start_s: float = 0.0, duration_s: float | None = None) -> Replay:
        """Replay the stretch of `duration_s` (of the recording) from `start_s`, `speed` times as fast.

        Raises `TraceError` if the stretch holds no request: a run over it would measure nothing.
        """
        require(speed > 0, f"speed is {speed}; it must be positive", "Give 1 for the recorded speed.")
        end_s = np.inf if duration_s is None else start_s + duration_s
        chosen_s = self.at_s[(self.at_s >= start_s) & (self.at_s < end_s)]
        if not chosen_s.size:
            nearest_s = self.at_s[np.abs(self.at_s - start_s).argmin()]
            raise TraceError(
                f"{self.name} has no request in the stretch {start_s:g}..{end_s:g} s",
                f"The nearest one is at {nearest_s:.3f} s; Trace.gaps() lists the empty stretches.",
            )
        return Replay(tuple(((chosen_s - start_s) / speed).tolist()))


def read_trace(path: str | Path) -> Trace:
    """Read a trace in either format; raises `TraceError` with the line, the value and the remedy."""
    for _, line in _lines(Path(path)):
        if line.lstrip().startswith("{"):
            return read_mooncake(path)
        if AZURE_COLUMNS[0] in line:
            return read_azure(path)
        raise TraceError(
            f"{path}, line 1: {line[:80]!r} begins neither an Azure 2023 csv nor a Mooncake jsonl trace",
            f"The csv begins with {','.join(AZURE_COLUMNS)}; each line of the jsonl is an object with 'timestamp'.",
        )
    raise _empty(path)


def read_azure(path: str | Path) -> Trace:
    """Read an Azure LLM inference 2023 csv: requests sorted by time, exact to its 100 ns."""
    lines = _lines(Path(path))
    _, header = next(lines, (1, ""))
    names = [name.strip() for name in header.split(",")]
    missing = [name for name in AZURE_COLUMNS if name not in names]
    if missing:
        raise TraceError(
            f"{path}, line 1: the header {header[:80]!r} lacks {', '.join(missing)}",
            f"The first line must name the columns {', '.join(AZURE_COLUMNS)}.",
        )
    rows = [_azure_row(path, number, line, names) for number, line in lines]
    if not rows:
        raise _empty(path)
    stamps, inputs, outputs = zip(*rows, strict=True)
    at = np.array(stamps, dtype="datetime64[ns]").astype(np.int64)
    return _sorted(path, (at - at.min()) / 1e9, inputs, outputs)


def read_mooncake(path: str | Path, *, spread: bool = True, seed: int = 0) -> Trace:
    """Read a Mooncake jsonl trace; `spread` places the arrivals of each coarse tick at random inside it, by `seed`.

    A trace counts as ticking when its requests share their timestamps two by two or more, as a mean. File order is
    kept inside a tick. With `spread=False` the times are as recorded, bursts and all.
    """
    rows = [_mooncake_row(path, number, line) for number, line in _lines(Path(path))]
    if not rows:
        raise _empty(path)
    stamps, inputs, outputs, blocks = zip(*sorted(rows, key=lambda row: row[0]), strict=True)
    at_s = (np.array(stamps, dtype=np.float64) - stamps[0]) / 1e3
    tick_s = _tick_s(at_s) if spread else 0.0
    if tick_s:
        at_s = _spread(at_s, tick_s, np.random.default_rng(seed))
        at_s -= at_s[0]
    return _sorted(path, at_s, inputs, outputs, blocks, tick_s)


def _tick_s(at_s: FloatArray) -> float:
    """The step of the recording clock, 0 for one that is fine enough; the ticks themselves may jitter a little."""
    ticks_s = np.unique(at_s)
    if ticks_s.size < 2 or at_s.size < 2 * ticks_s.size:
        return 0.0
    return round(float(np.median(np.diff(ticks_s))), 3)


def _spread(at_s: FloatArray, tick_s: float, rng: np.random.Generator) -> FloatArray:
    """Move each arrival to a random place between its tick and the next one, in the order that it had."""
    ticks_s, tick_of = np.unique(at_s, return_inverse=True)
    width_s = np.minimum(np.diff(ticks_s, append=np.inf), tick_s)
    return np.sort(at_s + rng.random(at_s.size) * width_s[tick_of])


def _sorted(
    path: str | Path,
    at_s: FloatArray,
    inputs: Iterable[int],
    outputs: Iterable[int],
    blocks: tuple[tuple[int, ...], ...] = (),
    spread_s: float = 0.0,
) -> Trace:
    """Build the trace in order of arrival; its arrays cannot be changed by accident."""
    order = np.argsort(at_s, kind="stable")
    return Trace(
        name=Path(path).stem,
        at_s=_frozen(at_s[order]),
        input_tokens=_frozen(np.array(inputs, dtype=np.int64)[order]),
        output_tokens=_frozen(np.array(outputs, dtype=np.int64)[order]),
        blocks=tuple(blocks[index] for index in order) if blocks else (),
        spread_s=spread_s,
    )


def _frozen(column: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The same array, which from now on refuses to be written."""
    column.setflags(write=False)
    return column


def _azure_row(path: str | Path, number: int, line: str, names: list[str]) -> tuple[np.datetime64, int, int]:
    """One line of the csv: when, input tokens, output tokens."""
    cells = dict(zip(names, next(csv.reader([line])), strict=False))
    stamp, *tokens = (cells.get(name, "").strip() for name in AZURE_COLUMNS)
    at = _parse(path, number, "TIMESTAMP", stamp, _instant, "a date and time such as 2023-11-16 18:17:03.9799600")
    inputs, outputs = (
        _parse(path, number, name, text, _count, "a whole number, 0 or more")
        for name, text in zip(AZURE_COLUMNS[1:], tokens, strict=True)
    )
    return at, inputs, outputs


def _mooncake_row(path: str | Path, number: int, line: str) -> tuple[float, int, int, tuple[int, ...]]:
    """One line of the jsonl: ms, input tokens, output tokens, prefix blocks."""
    row = _parse(path, number, "the line", line, _json_object, "one JSON object")
    at_ms = _parse(path, number, "timestamp", row.get("timestamp"), _milliseconds, "milliseconds, 0 or more")
    inputs = _parse(path, number, "input_length", row.get("input_length"), _count, "a whole number, 0 or more")
    outputs = _parse(path, number, "output_length", row.get("output_length"), _count, "a whole number, 0 or more")
    blocks = _parse(path, number, "hash_ids", row.get("hash_ids", []), _counts, "a list of whole numbers")
    return at_ms, inputs, outputs, blocks


def _parse(path: str | Path, number: int, field: str, value: Any, read: Callable[[Any], Value], expected: str) -> Value:
    """Read one value, or say which line holds what instead."""
    try:
        return read(value)
    except (ValueError, TypeError) as cause:
        shown = repr(value) if len(repr(value)) <= 80 else f"{value!r:.77}..."
        raise TraceError(
            f"{path}, line {number}: {field} is {shown}; it must be {expected}", "Correct or delete the line."
        ) from cause


def _instant(text: str) -> np.datetime64:
    at = np.datetime64(text.removesuffix("Z").removesuffix("+00:00"), "ns")
    if np.isnat(at):
        raise ValueError(text)
    return at


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str) or not 0 <= int(value) < 2**63:
        raise ValueError(value)
    return int(value)


def _counts(values: list[Any]) -> tuple[int, ...]:
    return tuple(map(_count, values))


def _milliseconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(value)
    return float(value)


def _json_object(line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(line)
    return row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, numbered from 1; a leading byte-order mark is skipped."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except OSError as cause:
        raise TraceError(f"{path} cannot be opened: {cause.strerror}", "Give the path of a trace file.") from cause
    except UnicodeDecodeError as cause:
        raise TraceError(
            f"{path} is not a text file: byte {cause.start}", "Unpack it first if it is packed."
        ) from cause


def _empty(path: str | Path) -> TraceError:
    return TraceError(f"{path} holds no request", "Give a trace with at least one line of data.")
