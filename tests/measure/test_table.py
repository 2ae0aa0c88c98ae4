from io import StringIO
from pathlib import Path

from rich.console import Console

from labkit.measure import ResultRow, open_store
from labkit.measure.table import print_rows


def _printed(rows: tuple[ResultRow, ...], path: Path) -> str:
    out = StringIO()
    print_rows(rows, path, Console(file=out, width=200))
    return out.getvalue()


def test_stored_rows_are_printed_with_interval_class_and_system(tmp_path: Path) -> None:
    store = open_store(tmp_path / "results.sqlite")
    store.add(ResultRow("lab", "p99", 52.0, "ms", "measured", system="greedy", low=50.0, high=55.0))
    text = _printed(store.rows(), store.path)
    for part in ("lab", "greedy", "p99", "52 ms (50..55)", "measured"):
        assert part in text


def test_an_empty_store_says_how_to_fill_it(tmp_path: Path) -> None:
    assert "labkit report" in _printed((), tmp_path / "results.sqlite")


def test_the_store_lies_where_the_environment_says(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("LABKIT_RESULTS", str(tmp_path / "mine.sqlite"))
    open_store().add(ResultRow("lab", "p99", 1.0, "ms", "measured"))
    assert [row.value for row in open_store(tmp_path / "mine.sqlite").rows()] == [1.0]
