"""Measure any engine: drive a load, turn rows into numbers, judge them, keep them with their origin."""

from labkit.measure.bounds import best_batch, inoue_bound, saturation_rate
from labkit.measure.compare import Ratio, compare, ratio
from labkit.measure.curve import LinearCurve, MeasuredCurve, ServiceCurve
from labkit.measure.drive import drive_closed, drive_open, repeat
from labkit.measure.live import LiveArrivals, LiveTotals, drive_live
from labkit.measure.metrics import DEFINITIONS, DEFINITIONS_VERSION, Definition, Metrics, NumberClass, definition
from labkit.measure.provenance import Provenance, collect
from labkit.measure.run import Run
from labkit.measure.simulate import Simulated, simulate
from labkit.measure.simulate_policy import simulate_policy
from labkit.measure.statistics import Interval, Percentile, accept, bootstrap, minimum_samples, percentile
from labkit.measure.store import ResultRow, Store, open_store
from labkit.measure.summarise import summarise
from labkit.measure.sweep import MaxRate, SweepPoint, geometric_rates, max_rate

__all__ = [
    "DEFINITIONS",
    "DEFINITIONS_VERSION",
    "Definition",
    "Interval",
    "LinearCurve",
    "LiveArrivals",
    "LiveTotals",
    "MaxRate",
    "MeasuredCurve",
    "Metrics",
    "NumberClass",
    "Percentile",
    "Provenance",
    "Ratio",
    "ResultRow",
    "Run",
    "ServiceCurve",
    "Simulated",
    "Store",
    "SweepPoint",
    "accept",
    "best_batch",
    "bootstrap",
    "collect",
    "compare",
    "definition",
    "drive_closed",
    "drive_live",
    "drive_open",
    "geometric_rates",
    "inoue_bound",
    "max_rate",
    "minimum_samples",
    "open_store",
    "percentile",
    "ratio",
    "repeat",
    "saturation_rate",
    "simulate",
    "simulate_policy",
    "summarise",
]
