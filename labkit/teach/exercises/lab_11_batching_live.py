"""The live batcher: percentiles that do not forget the misses, and the batch size that a load brings about."""

from __future__ import annotations

from math import ceil, inf

from labkit.teach.exercise import Case, Exercise, cases_of

__all__ = ["EXERCISES", "LAB", "mean_batch", "percentile_with_misses"]

LAB = "11_batching_live"


def percentile_with_misses(latencies_ms: list[float], misses: int, level: float) -> float:
    """Latency that `level` percent of all requests stay within; a miss was never answered, so it took for ever."""
    rank = ceil(level * (len(latencies_ms) + misses) / 100)
    return sorted(latencies_ms)[rank - 1] if rank <= len(latencies_ms) else inf


def mean_batch(rate_per_s: float, fixed_ms: float, per_row_ms: float) -> float:
    """Rows of a batch that greedy batching settles at: those that arrive while the batch before is running."""
    rate_per_ms = rate_per_s / 1000
    busy = rate_per_ms * per_row_ms
    return rate_per_ms * fixed_ms / (1 - busy) if busy < 1 else inf


def _percentile_cases() -> list[Case]:
    tens = [10.0 * n for n in (4, 10, 1, 3, 7, 2, 5, 9, 6, 8)]
    return cases_of(
        percentile_with_misses,
        (tens, 0, 50.0, 50.0, "Half of the ten requests took 50 ms or less; they do not come sorted."),
        (tens, 0, 99.0, 100.0, "99 % of ten requests is more than nine of them: only all ten reach it."),
        (tens, 10, 50.0, 100.0, "Ten more were never answered: half of all twenty are the ten that were."),
        (tens, 10, 60.0, inf, "60 % of all twenty were not answered in any time: the answer is infinity."),
        ([], 3, 50.0, inf, "Nobody was answered."),
    )


def _batch_cases() -> list[Case]:
    return cases_of(
        mean_batch,
        (500.0, 20.0, 1.0, 20.0, "In the 40 ms of a 20-row batch, 20 new requests arrive."),
        (800.0, 20.0, 1.0, 80.0, "80 % of the time goes into rows, so the fixed cost has the remaining 20 %."),
        (100.0, 0.0, 4.0, 0.0, "Without a fixed cost there is nothing to share, and no batch forms by itself."),
        (1000.0, 20.0, 1.0, inf, "Each second brings a whole second of rows: the queue grows for ever."),
        (1500.0, 20.0, 1.0, inf, "More rows arrive than any batch size can carry."),
    )


EXERCISES = (
    Exercise(
        id="11a",
        lab=LAB,
        task="Write percentile_with_misses(latencies_ms, misses, level): a request without an answer took for ever.",
        hints=(
            "Where in the sorted row of all requests do the ones without an answer stand?",
            "Behind all others. The percentile is the latency at place ceil(level · n / 100), n counting everybody.",
            "If that place lies behind the answered ones, the result is math.inf.",
        ),
        reference=percentile_with_misses,
        cases=_percentile_cases,
    ),
    Exercise(
        id="11b",
        lab=LAB,
        task="Write mean_batch(rate_per_s, fixed_ms, per_row_ms): the batch size that greedy batching settles at.",
        hints=(
            "While a batch of b rows runs for S(b), how many new requests arrive? They are the next batch.",
            "Set b = λ·S(b) = λ·(τ₀ + α·b), with λ in requests per millisecond.",
            "b = λτ₀ / (1 - λα); from λα = 1 up there is no such b, so return math.inf.",
        ),
        reference=mean_batch,
        cases=_batch_cases,
    ),
)
