"""In processes of their own, in which other threads have taken memory before: the arenas hold for a whole process."""

import os
import platform
import subprocess
import sys
from threading import Event, Thread, current_thread

import pytest

from labkit.devices import start_computing
from labkit.devices.computing import in_main_arena

PROLOGUE = """
import sys, threading
early, go_on = threading.Event(), threading.Event()

def live():
    block = bytearray(200_000)
    early.set()
    go_on.wait()

threading.Thread(target=live, daemon=True).start()
early.wait()
from labkit.devices import keep_freed_memory, start_computing
from labkit.devices.computing import in_main_arena
assert keep_freed_memory()
"""
ARENAS = """
plain, found, done = [], [], threading.Event()

def look(seen):
    seen.append(in_main_arena())
    done.wait()

threads = [threading.Thread(target=look, args=(plain,)) for _ in range(6)]
for thread in threads:
    thread.start()
threads += [start_computing(lambda: look(found), f"computing-{n}") for n in range(6)]
done.set()
for thread in threads:
    thread.join()
print(all(plain), all(found), len(found))
"""
FAULTS = """
import resource, torch
from labkit.batching import Batcher

network = torch.nn.Sequential(torch.nn.Conv2d(3, 24, 1), torch.nn.ReLU(), torch.nn.Conv2d(24, 8, 1)).eval()
rows = torch.ones(3, 224, 224)
most = 0
for _ in range(4):
    with Batcher(network) as batcher:
        for _ in range(20):
            batcher.submit(rows).result()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            batcher.submit(rows).result()
        most = max(most, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)
print(most)
"""
# What the layers of FAULTS write for a row: 24 channels twice, and 8.
PAGES = (2 * 24 + 8) * 224 * 224 * 4 // 4096

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def printed(script: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROLOGUE + script]
    return subprocess.run(command, capture_output=True, text=True, env=clean, timeout=100, check=True).stdout.split()


@glibc
def test_threads_that_compute_get_the_main_arena_where_others_do_not() -> None:
    assert printed(ARENAS) == ["False", "True", "6"]


@glibc
def test_a_batcher_keeps_its_memory_in_a_process_whose_threads_took_some_before() -> None:
    (faults,) = printed(FAULTS)
    assert int(faults) < PAGES // 10


def test_it_is_a_daemon_thread_with_its_name_that_calls_the_target_once() -> None:
    calls: list[tuple[str, bool]] = []
    done = Event()

    def target() -> None:
        calls.append((current_thread().name, current_thread().daemon))
        done.wait(10)

    thread = start_computing(target, "computing")
    done.set()
    thread.join(10)
    assert calls == [("computing", True)]


def test_the_main_thread_has_the_main_arena_or_there_are_none() -> None:
    found: list[bool] = []
    thread = Thread(target=lambda: found.append(in_main_arena()))
    thread.start()
    thread.join()
    assert in_main_arena()
    assert len(found) == 1
