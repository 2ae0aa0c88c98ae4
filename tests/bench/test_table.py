"""The printed table: everything is there, and what falls short is said."""

import math

from rich.console import Console

from labkit.bench import BenchCheck, BenchResult, BenchRow
from labkit.bench.result import Part
from labkit.bench.table import show


def printed(part: Part) -> str:
    console = Console(width=160, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    show(BenchResult.of("demo", (("cpu", "a chip"),), [part]), console)
    return console.export_text()


def test_each_row_shows_its_interval_unit_and_class() -> None:
    text = printed(Part((BenchRow("200/s", "labkit", "p99", 57.25, 56.0, 58.5, "ms", "modelled"),)))
    line = next(line for line in text.splitlines() if "labkit" in line and "p99" in line)
    for part in ("57.2", "56 .. 58.5", "ms", "modelled"):
        assert part in line


def test_each_case_has_a_table_of_its_own() -> None:
    text = printed(Part((BenchRow("200/s", "labkit", "p99", 1.0), BenchRow("400/s", "labkit", "p99", 2.0))))
    assert [line.strip() for line in text.splitlines() if line.strip() in ("200/s", "400/s")] == ["200/s", "400/s"]


def test_checks_are_printed_as_they_came_out() -> None:
    checks = (
        BenchCheck.within("good", 0.9, high=1.0),
        BenchCheck.within("bad", 1.2, high=1.0),
        BenchCheck.within("unknown", math.nan, high=1.0),
    )
    lines = printed(Part((), checks)).splitlines()
    verdicts = {name: next(line for line in lines if name in line) for name in ("good", "bad", "unknown")}
    assert "holds" in verdicts["good"]
    assert "falls short" in verdicts["bad"]
    assert "not measured" in verdicts["unknown"]


def test_why_a_number_is_missing_stands_below_its_table() -> None:
    text = printed(Part((BenchRow.missing("200/s", "a peer", "pip said [Errno 101] no network"),)))
    assert "a peer: not measured: pip said [Errno 101] no network" in " ".join(text.split())


def test_notes_and_machine_are_printed() -> None:
    text = printed(Part(notes=("The service [sleeps].",)))
    assert "- The service [sleeps]." in text
    assert "cpu a chip" in text
