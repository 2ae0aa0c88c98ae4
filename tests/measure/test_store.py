"""The results store: what goes in comes out, several writers at once, exports, and where numbers come from."""

import csv
import json
import math
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from labkit.errors import MeasureError, SettingError, Unavailable
from labkit.measure import DEFINITIONS_VERSION, Provenance, ResultRow, Store, collect
from labkit.measure.provenance import cpu_model, git_state, usable_cores
from labkit.measure.result import COLUMNS

ORIGIN = Provenance("abc123", True, "box", "a cpu", 2, 1, (("numpy", "2.4"), ("python", "3.11")))
ROW = ResultRow(
    "batching",
    "p99",
    52.5,
    "ms",
    "measured",
    settings={"policy": "greedy", "max_rows": 32, "wait_ms": 0.5, "warm": True, "note": None},
    seed=7,
    device="cuda:0",
    system="greedy",
    low=50.0,
    high=math.inf,
    samples=662,
    provenance=ORIGIN,
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "deep" / "results.sqlite")


def test_a_row_comes_back_as_it_went_in(store):
    (stored,) = store.add(ROW)
    assert store.rows() == (stored,)
    assert replace(stored, at_utc="") == ROW
    assert stored.definitions_version == DEFINITIONS_VERSION
    assert abs((datetime.now(UTC) - datetime.fromisoformat(stored.at_utc)).total_seconds()) < 3_600


def test_a_nan_comes_back_as_a_nan(store):
    store.add(replace(ROW, value=math.nan, low=math.nan))
    (row,) = store.rows()
    assert math.isnan(row.value)
    assert math.isnan(row.low)
    assert row.high == math.inf


def test_rows_are_filtered_by_what_is_given(store):
    store.add(ROW, replace(ROW, system="max_wait"), replace(ROW, metric="p50", number_class="modelled"))
    assert len(store.rows(name="batching")) == 3
    assert [row.system for row in store.rows(metric="p99")] == ["greedy", "max_wait"]
    assert [row.metric for row in store.rows(number_class="modelled", device="cuda:0")] == ["p50"]
    assert [row.metric for row in store.rows(newest=2)] == ["p99", "p50"]
    assert store.rows(since_utc="9999") == store.rows(name="no'; DROP TABLE results; --") == ()


def test_a_failing_row_stores_none_of_its_batch(store):
    with pytest.raises(sqlite3.Error):
        store.add(ROW, replace(ROW, value=object()))
    assert store.rows() == ()


def test_two_processes_write_at_once_and_no_row_is_lost(tmp_path):
    path = tmp_path / "shared.sqlite"
    script = (
        "import sys\n"
        "from labkit.measure import Provenance, ResultRow, Store\n"
        "origin = Provenance('', None, '', '', 1, 1, ())\n"
        "store = Store(sys.argv[1])\n"
        "sys.stdin.readline()\n"
        "for k in range(100):\n"
        "    store.add(ResultRow('race', 'k', k, '', 'measured', system=sys.argv[2], provenance=origin))\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), name], stdin=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.wait(timeout=100) for writer in writers] == [0, 0]
    rows = Store(path).rows(name="race")
    for name in ("one", "two"):
        assert [row.value for row in rows if row.system == name] == list(range(100))


def test_readers_go_on_while_a_writer_holds_the_file(store):
    store.add(ROW)
    writer = sqlite3.connect(store.path)
    writer.execute("BEGIN IMMEDIATE")
    assert len(store.rows()) == 1
    writer.rollback()
    writer.close()


def test_a_file_of_a_newer_labkit_is_refused(store):
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(MeasureError, match=r"newer labkit \(format 99"):
        Store(store.path)


def test_the_csv_holds_every_column(store, tmp_path):
    store.add(ROW, replace(ROW, value=math.nan))
    assert store.export_csv(tmp_path / "out" / "results.csv") == 2
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert list(first) == list(COLUMNS)
    assert (float(first["value"]), first["git_revision"], second["value"]) == (52.5, "abc123", "nan")
    assert json.loads(first["settings"]) == dict(ROW.settings)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.csv"]


def test_the_parquet_file_holds_every_column(store, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    store.add(ROW, replace(ROW, seed=None))
    assert store.export_parquet(tmp_path / "results.parquet") == 2
    table = parquet.read_table(tmp_path / "results.parquet")
    assert table.column_names == list(COLUMNS)
    assert table["git_dirty"].to_pylist() == [True, True]
    assert table["seed"].to_pylist() == [7, None]
    assert table["high"].to_pylist() == [math.inf, math.inf]


def test_parquet_without_pyarrow_says_what_to_install(store, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unavailable, match="pip install"):
        store.export_parquet(tmp_path / "results.parquet")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"number_class": "guessed"}, "number_class is 'guessed'; it must be one of measured, modelled"),
        ({"settings": {"policy": object()}}, r"settings\['policy'\] is a object"),
        ({"metric": ""}, "name or metric is empty"),
    ],
)
def test_a_row_that_says_too_little_is_refused(change, said):
    with pytest.raises(SettingError, match=said):
        replace(ROW, **change)


def test_provenance_is_collected_when_it_is_left_out(store):
    (row,) = store.add(replace(ROW, provenance=None))
    assert row.provenance == store.rows()[0].provenance
    versions = dict(row.provenance.versions)
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"torch", "numpy", "labkit"} <= set(versions)
    assert row.provenance.cores == usable_cores() >= 1
    assert collect().cpu == cpu_model()


def test_git_state_tells_revision_and_changes_and_leaves_foreign_repositories_alone(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True, text=True, env=environment
        )
        return done.stdout.strip()

    if subprocess.run(["git", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("git is not installed")
    assert git_state(tmp_path) == ("", None)
    git("init", "-q")
    (tmp_path / "code.py").write_text("one")
    git("add", "code.py")
    git("commit", "-qm", "one")
    revision = git("rev-parse", "HEAD")
    assert git_state(tmp_path) == (revision, False)
    (tmp_path / "notes.txt").write_text("not under version control")
    assert git_state(tmp_path) == (revision, False)
    (tmp_path / "code.py").write_text("two")
    assert git_state(tmp_path) == (revision, True)
    (tmp_path / "site-packages").mkdir()
    assert git_state(tmp_path / "site-packages") == ("", None)
