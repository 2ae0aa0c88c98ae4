"""Real worker processes: labkit's own under a small load, and what becomes of a worker's children."""

import math
import os
import sys
import time
from pathlib import Path

import pytest

from labkit.bench import worker as worker_module
from labkit.bench.fleet import Fleet
from labkit.bench.sample import Window, simulated
from labkit.bench.system import BATCHED, LABKIT, System
from labkit.bench.worker import Worker
from labkit.errors import MeasureError

PYTHON = Path(sys.executable)
GHOST = System("a ghost", "no_such_worker", "in-process", "1.0")
SPAWNER = """
import subprocess, sys
sys.path.append({folder!r})
from peers.protocol import serve

def spawn():
    return {{"pid": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid}}

serve({{"spawn": spawn}})
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and only waits to be noticed does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_labkits_own_worker_answers_a_few_hundred_requests() -> None:
    window = Window(rate_per_s=400.0, duration_s=0.6, warmup_s=0.2, seed=1)
    with Worker(LABKIT, PYTHON) as worker:
        answer = worker.ask("open", at_s=window.arrivals_s().tolist())
        cost = worker.ask("burst", requests=400, in_flight=200)
        awaited = worker.ask("burst by await", requests=400, in_flight=200)
    count = window.arrivals_s().size
    assert len(answer["latencies_ms"]) == len(answer["lags_ms"]) == count
    # No request can be faster than a batch of one; nothing is lost; each is in exactly one batch.
    assert min(answer["latencies_ms"]) >= 21.0
    assert sum(answer["batch_rows"]) == count
    assert max(answer["batch_rows"]) <= 32
    assert simulated(window).latencies_ms.min() >= 21.0
    for spent in (cost, awaited):
        assert spent["cpu_s"] > 0
        assert spent["wall_s"] > 0


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are POSIX")
def test_nothing_that_a_worker_started_outlives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "start.py"
    script.write_text(SPAWNER.format(folder=str(Path(worker_module.__file__).parent)))
    monkeypatch.setattr(worker_module, "_START", script)
    with Worker(GHOST, PYTHON) as worker:
        child = worker.ask("spawn")["pid"]
        assert alive(child)
    limit_s = time.monotonic() + 10
    while alive(child) and time.monotonic() < limit_s:
        time.sleep(0.02)
    assert not alive(child)


def test_what_a_command_raises_is_told_and_the_worker_lives_on() -> None:
    with Worker(LABKIT, PYTHON) as worker:
        with pytest.raises(MeasureError, match="KeyError"):
            worker.ask("no such command")
        assert worker.ask("burst", requests=10, in_flight=10)["cpu_s"] >= 0


def test_a_worker_that_ends_without_an_answer_is_an_error_with_its_last_word() -> None:
    with Worker(GHOST, PYTHON) as worker, pytest.raises(MeasureError, match=r"ended.*no_such_worker"):
        worker.ask("open", at_s=[0.0])


def test_a_worker_can_be_closed_twice() -> None:
    worker = Worker(GHOST, PYTHON)
    worker.close()
    worker.close()


def test_a_failing_peer_is_out_and_labkits_failure_is_raised() -> None:
    with Fleet((GHOST,)) as fleet:
        assert fleet.attempt(GHOST, fleet.ask, GHOST, "open", at_s=[0.0]) is None
        assert "no_such_worker" in fleet.failures[GHOST]
        asked_again: list[str] = []
        assert fleet.attempt(GHOST, asked_again.append, "no") is None
        assert asked_again == []
        own = System("labkit", "no_such_worker", "own")
        with pytest.raises(MeasureError):
            fleet.attempt(own, fleet.ask, own, "open", at_s=[0.0])


def test_a_peer_that_cannot_be_installed_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setattr("subprocess.run", _offline)
    said: list[str] = []
    with Fleet((BATCHED,), said.append) as fleet:
        fleet.prepare()
    assert "ERROR: no matching distribution" in fleet.failures[BATCHED]
    assert any("left out" in line for line in said)


def _offline(command: list[str], **_: object) -> None:
    import subprocess

    if "pip" in command:
        raise subprocess.CalledProcessError(
            1, command, "", "WARNING: retrying\nERROR: no matching distribution\n\nhint"
        )


def test_an_answer_that_never_comes_is_an_error() -> None:
    with Worker(LABKIT, PYTHON) as worker, pytest.raises(MeasureError, match=r"no answer within 0\.01 s"):
        worker.ask("open", limit_s=0.01, at_s=[math.pi])
