"""The kernel that runs a report: this very interpreter, with our time limits, whatever kernels are registered.

papermill hands the execution to an engine registered by name; ours differs from its own in four things. The kernel is
`sys.executable`, so a report needs no kernelspec and cannot land in another environment. Its working directory is
given to the kernel and not to this process, so that two threads can run reports. Its environment says
`LABKIT_MODE=headless`. And one deadline covers the whole run, beside the limit for each cell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient  # type: ignore[import-untyped]
from papermill.engines import NBClientEngine, papermill_engines  # type: ignore[import-untyped]

from labkit.devices.allocator import ALLOCATOR_VARIABLES
from labkit.errors import require
from labkit.report.progress import Progress

__all__ = ["ENGINE", "KernelRun", "Limits"]

ENGINE = "labkit"


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a run may take: each cell, all cells together, and the start of the kernel."""

    cell_s: float = 300.0
    total_s: float = 1200.0
    start_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("cell_s", "total_s", "start_s"):
            value = getattr(self, name)
            require(value > 0, f"{name} is {value}; a time limit must be positive", "Give seconds above 0.")


@dataclass(frozen=True, slots=True)
class KernelRun:
    """What the engine needs for one run, beside what papermill tells it."""

    folder: Path
    variables: Mapping[str, str]
    limits: Limits
    progress: Progress
    log: BinaryIO
    started_s: float

    @property
    def left_s(self) -> float:
        """Seconds until the deadline of the whole run."""
        return self.started_s + self.limits.total_s - perf_counter()

    def cell_limit_s(self, cell: NotebookNode) -> float:
        """Seconds that the next cell may take."""
        return max(0.001, min(self.limits.cell_s, self.left_s))  # 0 would mean: no limit


class _ThisInterpreter(KernelSpecManager):  # type: ignore[misc, unused-ignore]
    """Answers every question for a kernel with the running interpreter."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(name=kernel_name, resource_dir=RESOURCES, **get_kernel_dict())


class _Client(PapermillNotebookClient):  # type: ignore[misc]
    """papermill's client, with a kernel of this interpreter."""

    def create_kernel_manager(self) -> AsyncKernelManager:
        self.km = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=_ThisInterpreter())
        return self.km


class _Engine(NBClientEngine):  # type: ignore[misc]
    """Runs the cells; `run` comes through papermill's engine arguments."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, run: KernelRun, **_: Any) -> NotebookNode:
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            timeout_func=run.cell_limit_s,
            startup_timeout=run.limits.start_s,
            iopub_timeout=30,
            store_widget_state=False,
            on_cell_execute=lambda cell, cell_index: run.progress.begin(cell.source),
            on_cell_executed=lambda cell, cell_index, execute_reply: run.progress.end(),
        )
        # A dying interpreter says why (a segmentation fault, say) on its standard error, which no message carries.
        executed: NotebookNode = client.execute(
            cwd=str(run.folder), env={**ALLOCATOR_VARIABLES, **os.environ, **run.variables}, stderr=run.log
        )
        return executed


papermill_engines.register(ENGINE, _Engine)
