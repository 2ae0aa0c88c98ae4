"""Each case runs in a process of its own, for the allocator's settings hold for a whole process."""

import os
import platform
import subprocess
import sys

import pytest

from labkit.devices import keep_freed_memory

# Counts the page faults of a network with large tensors between its layers, in a thread as the engines run it.
COUNT = """
import resource, sys, threading
import torch
from labkit.devices import keep_freed_memory
from labkit.devices.allocator import trim_freed_memory

kept = keep_freed_memory() if "keep" in sys.argv else None
layers = [torch.nn.Conv2d(3, 24, 1), torch.nn.ReLU(), torch.nn.Conv2d(24, 8, 1), torch.nn.ReLU6()]
network = torch.nn.Sequential(*layers).eval()

@torch.inference_mode()
def faults():
    rows = torch.ones(4, 3, 224, 224)
    for _ in range(20):
        network(rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        network(rows)
    print(kept, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)

thread = threading.Thread(target=faults)
thread.start()
thread.join()
if "trim" in sys.argv:
    trim_freed_memory()
    print([line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1])
"""
# What the layers write: 24 and 8 channels, twice each.
PAGES = 2 * (24 + 8) * 4 * 224 * 224 * 4 // os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def counted(*arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", COUNT, *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(command, capture_output=True, text=True, env=clean | environment, timeout=100, check=True)
    return found.stdout.split()


def test_without_it_a_run_of_a_network_costs_a_fault_per_page_and_with_it_nearly_none() -> None:
    kept, faults = counted()
    assert kept == "None"
    # Huge pages, where the system gives them unasked, make one fault of 512.
    assert int(faults) >= PAGES // 1024
    kept, kept_faults = counted("keep")
    assert kept == "True"
    assert int(kept_faults) < int(faults) // 10


def test_an_allocator_that_somebody_has_tuned_is_left_alone() -> None:
    assert counted("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"


def test_what_is_kept_can_be_given_back() -> None:
    _, _, resident_kb = counted("keep", "trim")
    _, _, plain_kb = counted("trim")
    assert abs(int(resident_kb) - int(plain_kb)) * 1024 < 24_000_000


def test_asking_twice_gives_the_same_answer() -> None:
    assert keep_freed_memory() == keep_freed_memory()
