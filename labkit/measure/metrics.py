"""What is measured, defined once: the names, units and words that stand with every table.

`Metrics` holds the numbers of one run; `summarise` computes them from the rows in `labkit.records` and from nothing
else. Change a definition and `DEFINITIONS_VERSION` changes with it, so that stored results never mix two meanings.

>>> print(definition("attainment"))
attainment [share]: answered within the SLO / offered; rejected, expired, failed, cancelled and lost requests are misses
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labkit.errors import MeasureError, UnknownName, require
from labkit.measure.statistics import CONFIDENCE, Percentile, accept, minimum_samples, over_allowed

__all__ = [
    "DEFINITIONS",
    "DEFINITIONS_VERSION",
    "Definition",
    "Metrics",
    "NumberClass",
    "decide",
    "definition",
]

# Where a number comes from: measured here, modelled (a model fed with measurements), a physical or mathematical
# bound, or assumed. Every number that a person sees carries one of these.
NumberClass = Literal["measured", "modelled", "bound", "assumed"]

DEFINITIONS_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Definition:
    """What one number means."""

    name: str
    unit: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} [{self.unit}]: {self.text}"


_LATENCY = "completion - intended send time; misses count as infinitely late"

DEFINITIONS: tuple[Definition, ...] = (
    Definition("offered", "requests", "requests meant to be sent within the window (warm-up excluded)"),
    Definition("ok", "requests", "offered requests that were answered, in the window or in the drain after it"),
    Definition("within_slo", "requests", "answered requests whose latency is at most the SLO; without an SLO, all"),
    Definition("rejected", "requests", "refused at once because the queue was full"),
    Definition("expired", "requests", "given up because their own time limit had passed or could not be met"),
    Definition("failed", "requests", "answered with an error"),
    Definition("cancelled", "requests", "withdrawn before an answer"),
    Definition("lost", "requests", "offered requests of which no row tells the end"),
    Definition("offered_per_s", "1/s", "offered / window"),
    Definition(
        "achieved_per_s", "1/s", "answers that came within the window, of requests sent in warm-up too / window"
    ),
    Definition("goodput_per_s", "1/s", "answered within the SLO / window"),
    Definition(
        "attainment",
        "share",
        "answered within the SLO / offered; rejected, expired, failed, cancelled and lost requests are misses",
    ),
    Definition("p50", "ms", f"median latency: {_LATENCY}"),
    Definition("p95", "ms", f"95th percentile of latency, or the highest that the sample supports: {_LATENCY}"),
    Definition("p99", "ms", f"99th percentile of latency (from 662 samples up), else as p95: {_LATENCY}"),
    Definition("mean_wait_ms", "ms", "mean queue wait: start of execution - arrival, of requests that were executed"),
    Definition("mean_compute_ms", "ms", "mean duration of a compute step, device synchronised"),
    Definition("mean_prepare_ms", "ms", "mean duration of a prepare step"),
    Definition("mean_batch", "rows", "rows / batches, E[B]: what the device sees"),
    Definition("mean_batch_by_row", "rows", "item-weighted batch, E[B^2] / E[B]: what a request sees"),
    Definition("fill", "share", "rows / (batches x cap)"),
    Definition("padding_waste", "share", "1 - real / computed units (tokens, pixels), padded rows included"),
    Definition("busy_share", "share", "time with a compute step running / window, mean over devices"),
    Definition("overlap_ratio", "ratio", "(prepare time + compute time) / window; above 1 the stages truly overlap"),
    Definition("shed_rate", "share", "(rejected + expired) / offered"),
    Definition("unwanted_share", "share", "executed requests whose answer nobody waited for any more / executed"),
    Definition(
        "copied_bytes_per_request",
        "bytes",
        "bytes copied on the host for a request, in staging and collating / executed",
    ),
    Definition("lag_p99_ms", "ms", "99th percentile of the generator's lag: actual - intended send time"),
    Definition("window_s", "s", "length of the measured window; steps count if they start in it"),
)


def definition(name: str) -> Definition:
    """The definition of the number called `name`; raises `UnknownName`."""
    for entry in DEFINITIONS:
        if entry.name == name:
            return entry
    raise UnknownName.among("metric", name, (entry.name for entry in DEFINITIONS))


@dataclass(frozen=True, slots=True)
class Metrics:
    """The numbers of one run, as `DEFINITIONS` define them; a number without a single sample is `nan`."""

    offered: int
    ok: int
    within_slo: int
    rejected: int
    expired: int
    failed: int
    cancelled: int
    lost: int
    offered_per_s: float
    achieved_per_s: float
    goodput_per_s: float
    attainment: float
    p50: Percentile
    p95: Percentile
    p99: Percentile
    mean_wait_ms: float
    mean_compute_ms: float
    mean_prepare_ms: float
    mean_batch: float
    mean_batch_by_row: float
    fill: float
    padding_waste: float
    busy_share: float
    overlap_ratio: float
    shed_rate: float
    unwanted_share: float
    copied_bytes_per_request: float
    lag_p99_ms: float
    window_s: float
    slo_ms: float | None = None
    void: str = ""
    number_class: NumberClass = "measured"
    definitions_version: str = DEFINITIONS_VERSION

    def meets(self, slo_ms: float, level: float = 99.0, confidence: float = CONFIDENCE) -> bool:
        """Whether the run proves that `level` percent of the requests meet the SLO (early stopping).

        Raises `SettingError` for another SLO than the one that the run was summarised with.
        """
        require(
            self.slo_ms == slo_ms,
            f"these metrics count against an SLO of {self.slo_ms} ms, not {slo_ms} ms",
            f"Use summarise(..., slo_ms={slo_ms}).",
        )
        return decide(self.offered, self.offered - self.within_slo, level, confidence)


def decide(samples: int, misses: int, level: float = 99.0, confidence: float = CONFIDENCE) -> bool:
    """`accept`, but a sample too small to say either yes or no raises `MeasureError` instead of saying no.

    >>> decide(662, 1), decide(662, 9), decide(100, 50)
    (True, False, False)
    """
    undecided = misses <= samples * (1 - level / 100) and over_allowed(samples, level, confidence) < 0
    if undecided:
        raise MeasureError(
            f"{samples} requests, {misses} of them late, cannot decide p{level:g} at {confidence:.0%} confidence",
            f"Measure at least {minimum_samples(level, 0, confidence)} requests, or judge a lower percentile.",
        )
    return accept(samples, misses, level, confidence)
