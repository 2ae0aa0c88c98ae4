"""From rows to numbers: `summarise` computes every metric of a run, with numpy, as `metrics.DEFINITIONS` say."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from labkit.errors import require
from labkit.measure.columns import RequestColumns, StepColumns, mean, share
from labkit.measure.metrics import Metrics
from labkit.measure.run import Run
from labkit.measure.statistics import percentile
from labkit.records import RequestRecord, StepRecord

__all__ = ["summarise"]


def summarise(
    source: Run | Sequence[RequestRecord],
    steps: Sequence[StepRecord] = (),
    *,
    window_s: float | None = None,
    start_s: float | None = None,
    slo_ms: float | None = None,
    offered: int | None = None,
) -> Metrics:
    """Compute the metrics of a `Run`, or of bare rows and the window that they belong to.

    With rows, `window_s` is required; `start_s` (the window's start on `time.perf_counter`) defaults to the earliest
    intended send time, and `offered` to the number of rows (more offered than rows: the rest are lost, and misses).
    A run brings all of these, and its own SLO unless `slo_ms` says otherwise.

    >>> rows = [RequestRecord(k, k / 10, k / 10, k / 10, k / 10, k / 10 + 0.02, "ok") for k in range(100)]
    >>> metrics = summarise(rows, window_s=10.0, slo_ms=50.0)
    >>> metrics.goodput_per_s, metrics.attainment, str(metrics.p99)
    (10.0, 1.0, 'p90 20.0 ms (20.0..20.0, n=100)')
    """
    if isinstance(source, Run):
        return _summarise(source, source.slo_ms if slo_ms is None else slo_ms)
    length_s = window_s or 0.0
    require(length_s > 0, f"window_s is {window_s}; it must be positive", "Give the window's length in seconds.")
    if start_s is None:
        start_s = min((row.intended_s for row in source), default=0.0)
    count = max(len(source), offered or 0)
    return _summarise(Run(tuple(source), tuple(steps), length_s, count, math.nan, "", start_s), slo_ms)


def _summarise(run: Run, slo_ms: float | None) -> Metrics:
    """The numbers in the order of their definitions."""
    requests = RequestColumns.of(run.requests)
    compute = StepColumns.of([step for step in run.steps if step.stage != "prepare"])
    prepare = StepColumns.of([step for step in run.steps if step.stage == "prepare"])
    start_s, end_s = run.start_s, run.start_s + run.window_s
    # What has no row is a miss, and infinitely late: it never vanishes from a percentile.
    lost = run.offered - len(run.requests)
    latencies_ms = np.append(requests.latency_ms, np.full(lost, math.inf))
    ok, rejected, expired = (requests.count(outcome) for outcome in ("ok", "rejected", "expired"))
    within = ok if slo_ms is None else int((latencies_ms <= slo_ms).sum())
    executed, rows = int(requests.executed.sum()), compute.ok_sum(compute.rows)
    copied = requests.copied_bytes.sum()
    return Metrics(
        offered=run.offered,
        ok=ok,
        within_slo=within,
        rejected=rejected,
        expired=expired,
        failed=requests.count("failed"),
        cancelled=requests.count("cancelled"),
        lost=lost,
        offered_per_s=share(run.offered, run.window_s),
        achieved_per_s=share(requests.answered_before(end_s) + run.carried, run.window_s),
        goodput_per_s=share(within, run.window_s),
        attainment=share(within, run.offered),
        p50=percentile(latencies_ms, 50.0),
        p95=percentile(latencies_ms, 95.0),
        p99=percentile(latencies_ms, 99.0),
        mean_wait_ms=mean(requests.wait_ms[requests.executed]),
        mean_compute_ms=mean(compute.duration_ms),
        mean_prepare_ms=mean(prepare.duration_ms),
        mean_batch=mean(compute.rows[compute.ok]),
        mean_batch_by_row=share(compute.ok_sum(compute.rows**2), rows),
        fill=share(rows, compute.ok_sum(compute.cap)),
        padding_waste=1 - share(compute.ok_sum(compute.real), compute.ok_sum(compute.computed)),
        busy_share=compute.busy_share(start_s, end_s),
        overlap_ratio=share(compute.inside_s(start_s, end_s) + prepare.inside_s(start_s, end_s), run.window_s),
        shed_rate=share(rejected + expired, run.offered),
        unwanted_share=share(int(requests.unwanted.sum()), executed),
        copied_bytes_per_request=share(float(copied), executed),
        lag_p99_ms=run.lag_p99_ms,
        window_s=run.window_s,
        slo_ms=slo_ms,
        void=run.void,
    )
