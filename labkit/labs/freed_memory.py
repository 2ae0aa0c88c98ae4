"""What it costs when freed memory goes back to the system between layers, measured on a model on the CPU.

The allocator's settings hold for a whole process and cannot be taken back. So a process of its own runs the model:
twice as the C library is (the second time is the control), then with freed memory kept. It answers in JSON lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from threading import Event

import torch

from labkit.devices import keep_freed_memory
from labkit.errors import MeasureError
from labkit.labs.subject import subject

__all__ = ["CASES", "Runs", "measure"]

CASES = ("given back", "given back again", "kept")
_STARVED = "Close other programs, or choose smaller batches."


@dataclass(frozen=True, slots=True)
class Runs:
    """The model on batches of `rows`: milliseconds and page faults of one batch."""

    case: str
    rows: int
    batch_ms: float
    faults: float


def measure(model: str, sizes: tuple[int, ...], seconds: float, stop: Event) -> Iterator[Runs]:
    """Yield each case for each size of batch, as the process finds them; each takes `seconds`.

    Raises `MeasureError` if the process fails. It is ended when `stop` is set, or nobody asks for more.
    """
    command = [sys.executable, "-m", __name__, model, ",".join(map(str, sizes)), str(seconds)]
    with TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        try:
            for line in process.stdout or ():
                yield Runs(**json.loads(line))
                if stop.is_set():
                    return
            if process.wait():
                said.seek(0)
                raise MeasureError(f"the measuring process ended: {said.read()[-500:]}", _STARVED)
        finally:
            process.kill()
            process.communicate()


def _tell(model: str, sizes: tuple[int, ...], seconds: float) -> None:
    """The process's side."""
    subj = subject(model, "cpu")
    batches = {rows: subj.batch(rows) for rows in sizes}
    for case in CASES:
        if case == "kept":
            keep_freed_memory()
        for rows, batch in batches.items():
            batch_ms, faults = _run(subj.model.module, batch, seconds)
            print(json.dumps(asdict(Runs(case, rows, batch_ms, faults))), flush=True)


@torch.inference_mode()
def _run(module: torch.nn.Module, batch: torch.Tensor, seconds: float) -> tuple[float, float]:
    for _ in range(2):
        module(batch)
    count, begun_s, before = 0, time.perf_counter(), _faults()
    while count < 2 or time.perf_counter() - begun_s < seconds:
        module(batch)
        count += 1
    return (time.perf_counter() - begun_s) * 1000 / count, (_faults() - before) / count


def _faults() -> int:
    """Pages that this process has touched for the first time so far; 0 where the system does not count them."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


if __name__ == "__main__":
    _tell(sys.argv[1], tuple(map(int, sys.argv[2].split(","))), float(sys.argv[3]))
