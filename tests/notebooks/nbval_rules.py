"""A pytest plugin for nbval: what is never compared, because it differs from run to run by its nature.

Figures carry random ids, and anything may warn on standard error. What a cell prints is compared where the cell says
`# NBVAL_CHECK_OUTPUT`.
"""

from typing import Any

NEVER_COMPARED = (
    "text/html",
    "application/vnd.plotly.v1+json",
    "application/vnd.jupyter.widget-view+json",
    "image/png",
    "stderr",
)


def pytest_collectstart(collector: Any) -> None:
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += NEVER_COMPARED
