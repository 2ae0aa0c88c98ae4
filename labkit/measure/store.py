"""Results that stay: one SQLite file, safe to write from several notebooks at once, every number with its origin.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     store = Store(Path(folder) / "results.sqlite")
...     _ = store.add(ResultRow("batching", "p99", 52.0, "ms", "measured", settings={"max_rows": 32}, seed=1))
...     [(row.metric, row.value, row.settings["max_rows"]) for row in store.rows(name="batching")]
[('p99', 52.0, 32)]
"""

from __future__ import annotations

import csv
import importlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labkit.errors import MeasureError, Unavailable, require
from labkit.measure.provenance import collect
from labkit.measure.result import COLUMNS, ResultRow

__all__ = ["ResultRow", "Store", "open_store"]

SCHEMA_VERSION = 1
BUSY_S = 30.0


def open_store(path: str | Path | None = None) -> Store:
    """The store at `path`; without one, the file named by `$LABKIT_RESULTS` or the one in labkit's cache folder."""
    # devices loads torch, which reading a store at a given path does not need.
    if path is None and not (path := os.environ.get("LABKIT_RESULTS")):
        from labkit.devices import cache_dir

        path = cache_dir() / "results.sqlite"
    return Store(path)


class Store:
    """A file of result rows. Any number of threads and processes may write and read it at the same time.

    Each call opens and closes its own connection: nothing is held by an idle notebook or by a forked process.
    SQLite's write-ahead log lets readers go on while somebody writes; writers queue for up to 30 s.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._create()

    def add(self, *rows: ResultRow) -> tuple[ResultRow, ...]:
        """Store the rows in one transaction, all or none; return them with time and provenance filled in."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        origin = collect() if any(row.provenance is None for row in rows) else None
        filled = tuple(replace(row, at_utc=row.at_utc or now, provenance=row.provenance or origin) for row in rows)
        places = ", ".join("?" * len(COLUMNS))
        with self._connection() as connection:
            connection.executemany(
                f"INSERT INTO results ({', '.join(COLUMNS)}) VALUES ({places})", [row.cells() for row in filled]
            )
        return filled

    def rows(
        self,
        *,
        name: str | None = None,
        system: str | None = None,
        metric: str | None = None,
        number_class: str | None = None,
        device: str | None = None,
        since_utc: str | None = None,
        newest: int | None = None,
    ) -> tuple[ResultRow, ...]:
        """The stored rows that match everything that is given, oldest first; with `newest`, only the last ones.

        `since_utc` is an ISO time, or its beginning ("2025-11").
        """
        wanted = {"name": name, "system": system, "metric": metric, "number_class": number_class, "device": device}
        given = {column: value for column, value in wanted.items() if value is not None}
        conditions = [f"{column} = ?" for column in given] + (["at_utc >= ?"] if since_utc is not None else [])
        values: list[Any] = [*given.values(), *([since_utc] if since_utc is not None else [])]
        require(newest is None or newest >= 1, f"newest is {newest}; it must be at least 1", "Leave it out for all.")
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        query = f"SELECT {', '.join(COLUMNS)} FROM results {where} ORDER BY id DESC LIMIT ?"
        with self._connection() as connection:
            found = connection.execute(query, [*values, -1 if newest is None else newest]).fetchall()
        return tuple(ResultRow.of_cells(cells) for cells in reversed(found))

    def export_csv(self, path: str | Path) -> int:
        """Write all rows as CSV (settings and versions as JSON); return how many."""
        rows = [row.cells() for row in self.rows()]
        with _replacing(Path(path)) as fresh, fresh.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(rows)
        return len(rows)

    def export_parquet(self, path: str | Path) -> int:
        """Write all rows as Parquet (settings and versions as JSON); return how many. Needs pyarrow."""
        try:
            arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        except ImportError as missing:
            raise Unavailable("Parquet needs pyarrow, which is missing", "Run: pip install 'labkit[lab]'") from missing
        rows = [row.cells() for row in self.rows()]
        types = {"TEXT": arrow.string(), "REAL": arrow.float64(), "INTEGER": arrow.int64(), "BOOLEAN": arrow.bool_()}
        schema = arrow.schema([(column, types[kind.split()[0]]) for column, kind in COLUMNS.items()])
        table = arrow.Table.from_pylist([dict(zip(COLUMNS, cells, strict=True)) for cells in rows], schema=schema)
        with _replacing(Path(path)) as fresh:
            parquet.write_table(table, fresh)
        return len(rows)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for one call: committed at the end, rolled back on an error, always closed."""
        with closing(sqlite3.connect(self.path, timeout=BUSY_S)) as connection, connection:
            yield connection

    def _create(self) -> None:
        columns = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
        _set_wal(self.path)
        with self._connection() as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise MeasureError(
                    f"{self.path} was written by a newer labkit (format {version}, known is {SCHEMA_VERSION})",
                    "Update labkit, or use another file.",
                )
            connection.execute(f"CREATE TABLE IF NOT EXISTS results (id INTEGER PRIMARY KEY, {columns})")
            connection.execute("CREATE INDEX IF NOT EXISTS results_by_name ON results (name, metric)")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _set_wal(path: Path) -> None:
    """Switch the file to write-ahead logging. SQLite does not queue for this one, so ask again when it is taken."""
    end_s = time.monotonic() + BUSY_S
    while True:
        try:
            with closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end_s:
                raise
            time.sleep(0.02)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A fresh file beside `path` that takes its place only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
