"""Nothing stays behind: no process, no thread, no shared memory, no descriptor; also after a killed controller."""

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
import running_stages as stages
import torch
from running_stages import until

from labkit.errors import EngineClosed
from labkit.sharding.health import Health
from labkit.sharding.nursery import hatch, stop_fork_server
from labkit.sharding.recovery import Budget

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm")


def left():
    """Everything that could leak. The fork server and its helper are the process's own, and stay."""
    workers = {child.pid for child in psutil.Process().children(recursive=True)}
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("pipeline")}
    return workers, set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd")), threads


@pytest.fixture
def nothing_new():
    hatch("first").close(5.0)
    before = left()
    yield
    gc.collect()
    assert until(lambda: left() == before, 5.0), (left(), before)


@pytest.mark.parametrize("carrier", ["process", "thread"])
@pytest.mark.parametrize("drain", [True, False])
def test_closing_leaves_nothing(nothing_new, pipeline_of, carrier, drain):
    pipeline = pipeline_of([stages.plus_one, stages.Work(5)], carrier=carrier, microbatch_rows=1, spares=1)
    futures = [pipeline.submit(torch.ones(4, 1)) for _ in range(5)]
    pipeline.close(drain=drain)
    assert all(future.done() for future in futures)


def test_closing_amid_faults_leaves_nothing(nothing_new, pipeline_of):
    pipeline = pipeline_of([stages.plus_one] * 3, microbatch_rows=1, spares=1)
    futures = [pipeline.submit(torch.ones(4, 1)) for _ in range(5)]
    pipeline.inject(0, "hang")
    pipeline.inject(1, "kill")
    pipeline.inject(2, "hang")
    pipeline.close(drain=False)
    assert all(future.done() for future in futures)


def test_a_pipeline_that_failed_leaves_nothing(nothing_new, pipeline_of):
    pipeline = pipeline_of([stages.same, stages.same], budget=Budget(restarts=0))
    pipeline.inject(0, "kill")
    pipeline.inject(1, "kill")
    assert until(lambda: pipeline.snapshot().health is Health.FAILED, 5)
    pipeline.close()


def test_a_pipeline_that_nobody_holds_ends_after_its_last_answer(nothing_new):
    from labkit.sharding.pipeline import Pipeline

    future = Pipeline([stages.Work(50), stages.plus_one], microbatch_rows=1).submit(torch.ones(4, 1))
    gc.collect()
    assert future.result(30).tolist() == [[2.0]] * 4


def test_closing_twice_and_from_several_threads(nothing_new, pipeline_of):
    pipeline = pipeline_of([stages.same])
    threads = [threading.Thread(target=pipeline.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(EngineClosed):
        pipeline.submit(torch.ones(1))


def test_the_fork_server_can_be_ended_and_comes_back(pipeline_of):
    stop_fork_server()
    assert pipeline_of([stages.plus_one]).submit(torch.ones(1)).result(30).item() == 2


def test_workers_whose_fork_server_is_killed_are_replaced(pipeline_of):
    pipeline = pipeline_of([stages.plus_one, stages.plus_one])
    assert pipeline.submit(torch.ones(1)).result(30).item() == 3
    server = psutil.Process(next(iter(pipeline._crew.hands)).remote.pid).parent()
    assert server.pid != os.getpid()
    server.kill()
    assert until(lambda: pipeline.snapshot().losses >= 2, 10)
    assert pipeline.submit(torch.ones(1)).result(60).item() == 3


CONTROLLER = """
import sys, signal, os
sys.path.insert(0, {folder!r})
import torch, running_stages as stages
from labkit.sharding import segment
from labkit.sharding.pipeline import Pipeline
segment._NAMELESS = {nameless}
pipeline = Pipeline([stages.plus_one, stages.SlowFirstCall(3600.0), stages.same], spares=1)
pipeline.submit(torch.ones(2))
pipeline.inject(2, "hang")
print(*[hand.remote.pid for hand in pipeline._crew.hands], flush=True)
print("unguarded") if __name__ == "__main__" else os._exit(3)
{end}
"""


@pytest.mark.parametrize("nameless", [True, False])
def test_a_killed_controller_takes_its_workers_along_even_those_that_hang(nameless):
    before = set(os.listdir("/dev/shm"))
    code = CONTROLLER.format(folder=str(Path(__file__).parent), nameless=nameless, end="signal.pause()")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as controller:
        workers = [psutil.Process(int(pid)) for pid in controller.stdout.readline().split()]
        server = workers[0].parent()
        assert len(workers) == 4
        controller.send_signal(signal.SIGKILL)
    assert until(lambda: not any(alive(one) for one in [*workers, server]), 10)
    assert until(lambda: set(os.listdir("/dev/shm")) <= before, 10)


def test_a_script_that_just_ends_leaves_nothing_and_needs_no_main_guard(tmp_path):
    before = set(os.listdir("/dev/shm"))
    script = tmp_path / "script.py"
    script.write_text(CONTROLLER.format(folder=str(Path(__file__).parent), nameless=True, end=""))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    workers, last = done.stdout.splitlines()
    assert last == "unguarded"
    assert done.stderr == ""
    assert until(lambda: not any(psutil.pid_exists(int(pid)) for pid in workers.split()), 10)
    assert set(os.listdir("/dev/shm")) <= before


def alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_a_worker_that_serves_for_long_remembers_no_slots_of_the_past(pipeline_of):
    pipeline = pipeline_of([stages.plus_one] * 2, carrier="thread", microbatch_rows=1)
    for _ in range(20):
        pipeline.submit(torch.ones(4, 1)).result(30)
    known = [len(hand._known) + len(hand._dropped) for hand in pipeline._crew.hands]
    assert max(known) < 20
