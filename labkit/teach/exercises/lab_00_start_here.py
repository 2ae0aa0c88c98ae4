"""Start here: one law that holds for every queue in this laboratory."""

from __future__ import annotations

from labkit.teach.exercise import Case, Exercise, cases_of

__all__ = ["EXERCISES", "LAB", "littles_law"]

LAB = "00_start_here"


def littles_law(rate_per_s: float, latency_ms: float) -> float:
    """Mean number of requests in the system: what arrives per second, times the seconds that each one stays."""
    return rate_per_s * latency_ms / 1000


def _cases() -> list[Case]:
    return cases_of(
        littles_law,
        (10.0, 1000.0, 10.0, "Ten arrive each second and each stays one second."),
        (300.0, 50.0, 15.0, "Mind the units: latency is in milliseconds."),
        (0.0, 50.0, 0.0, "Nobody comes, so nobody is inside."),
    )


EXERCISES = (
    Exercise(
        id="00a",
        lab=LAB,
        task="Write littles_law(rate_per_s, latency_ms): how many requests are in the system, on average?",
        hints=(
            "Stand at the door for a second and count who comes in. How long does each one stay?",
            "L = λW, with both in the same unit of time: a millisecond is 1/1000 of a second.",
        ),
        reference=littles_law,
        cases=_cases,
    ),
)
