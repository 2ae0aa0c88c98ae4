import json
import subprocess
import sys

import torch

from labkit.devices import release

# A failed cell in a real IPython shell; the tensor lives in a local variable of a function on the traceback.
IPYTHON = """
import gc, json, sys, weakref
import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from labkit.devices import release

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
alive = []
shell.push({"torch": torch, "seen": lambda tensor: alive.append(weakref.ref(tensor))})
shell.run_cell('''
kept = torch.ones(7)
def inner():
    big = torch.zeros(1_000_000)
    seen(big)
    raise ValueError("the first error")
def outer():
    try:
        inner()
    except ValueError as error:
        raise RuntimeError("the second error") from error
outer()
''')
gc.collect()
before = alive[0]() is not None
freed = release()
report = {"before": before, "after": alive[0]() is not None, "freed": freed,
          "kept": shell.user_ns["kept"].sum().item(), "again": release(), "tb": shell.InteractiveTB.tb is None}
print("REPORT" + json.dumps(report))
"""

PLAIN = """
import gc, sys, weakref
import torch
from labkit.devices import release
assert "IPython" not in sys.modules

def fail(alive):
    big = torch.zeros(1_000_000)
    alive.append(weakref.ref(big))
    raise ValueError

alive = []
try:
    fail(alive)
except ValueError as error:
    sys.last_value, sys.last_traceback, sys.last_type = error, error.__traceback__, type(error)
gc.collect()
assert alive[0]() is not None
assert release() == 4_000_000
assert alive[0]() is None
assert sys.last_value is None
assert "IPython" not in sys.modules
"""


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


def test_a_failed_cell_no_longer_keeps_its_tensors_alive():
    done = run(IPYTHON)
    report = json.loads(done.stdout.partition("REPORT")[2])
    assert report == {"before": True, "after": False, "freed": 4_000_000, "kept": 7.0, "again": 0, "tb": True}


def test_release_works_outside_ipython_and_does_not_import_it():
    done = run(PLAIN)
    assert done.returncode == 0, done.stderr


def test_a_cycle_of_tensors_is_counted_once_and_freed():
    cycle = [torch.zeros(1000)]
    cycle.append(cycle)
    cycle.append(cycle[0].view(10, 100))  # a second view of the same storage
    release()
    del cycle
    assert release() == 4000
