"""Faults: write the policy yourself, and count what isolating a bad row costs."""

from __future__ import annotations

from math import ceil, log2

from labkit.batching import Decision, Run, View, WaitUntil
from labkit.teach.exercise import Case, Exercise
from labkit.teach.policy_exercise import PolicyExercise

__all__ = ["EXERCISES", "LAB", "decide", "runs_to_isolate"]

LAB = "12_batching_faults"


def decide(view: View) -> Decision:
    """Run at once what fills a batch or has waited five milliseconds; else wait for company until then."""
    due_s = view.oldest_s + 0.005
    return Run(view.rows) if view.full or view.now_s >= due_s else WaitUntil(due_s)


def runs_to_isolate(rows: int) -> int:
    """Runs until one bad row of `rows` (a power of two) stands alone: the whole, then two halves on each level."""
    return 1 + 2 * ceil(log2(rows))


def _counted(rows: int, bad: int) -> int:
    """The same by trying: split until the bad row is alone."""
    if not 0 <= bad < rows or rows == 1:
        return 1
    half = rows // 2
    return 1 + _counted(half, bad) + _counted(rows - half, bad - half)


def _cases() -> list[Case]:
    why = "Each level runs two halves: one succeeds, the other holds the bad row and is halved again."
    return [Case({"rows": rows}, _counted(rows, bad=rows // 3), why) for rows in (1, 2, 8, 32, 128)]


EXERCISES = (
    PolicyExercise(
        id="12a",
        lab=LAB,
        task="Write decide(view): Run(rows) or WaitUntil(at_s). The score is the highest rate that it holds.",
        hints=(
            "view.rows wait, view.full says that waiting cannot make the batch larger. Start with Run(view.rows).",
            "Waiting pays only while the device would be idle anyway. When does company come soon enough?",
            "view.oldest_s is when the oldest request came: no timer should start later than that.",
            "To beat greedy: view.arrivals_s() says who waits, and Run(rows, pass_over=n) lets the first n stand back.",
        ),
        reference=decide,
        cases=list,
    ),
    Exercise(
        id="12b",
        lab=LAB,
        task="Write runs_to_isolate(rows): how many runs until the one bad row of a failing batch (2^k rows) is alone?",
        hints=(
            "Write the runs down for 4 rows with one bad row: the whole, two halves, two quarters.",
            "Each level costs two runs, and there are log2(rows) levels below the whole.",
        ),
        reference=runs_to_isolate,
        cases=_cases,
    ),
)
