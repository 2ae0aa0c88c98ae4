"""Memory and overlap: what copying costs, and what running two stages side by side can give at most."""

from __future__ import annotations

from labkit.teach.exercise import Case, Exercise, cases_of

__all__ = ["EXERCISES", "LAB", "collate_ms", "overlapped_rate"]

LAB = "13_batching_memory_and_overlap"


def collate_ms(rows: int, row_bytes: int, copy_bytes_per_s: float) -> float:
    """Milliseconds to stack rows: each byte is read once and written once, and the bandwidth counts both."""
    return 1000 * 2 * rows * row_bytes / copy_bytes_per_s


def overlapped_rate(prepare_ms: float, threads: int, compute_ms: float, cores: int) -> float:
    """Requests per second of two stages side by side: the slower stage, or all cores busy, whichever is less."""
    slowest_ms = max(prepare_ms / threads, compute_ms)
    work_ms = (prepare_ms + compute_ms) / cores
    return 1000 / max(slowest_ms, work_ms)


def _collate_cases() -> list[Case]:
    photo = 3 * 224 * 224 * 4
    return cases_of(
        collate_ms,
        (1, photo, 10e9, 2 * photo / 10e9 * 1000, "Read and written."),
        (32, photo, 10e9, 3.8535168, "32 photos of 602112 bytes."),
        (0, photo, 10e9, 0.0, "Nothing to copy."),
    )


def _overlap_cases() -> list[Case]:
    return cases_of(
        overlapped_rate,
        (5.0, 1, 20.0, 8, 50.0, "The model is the slower stage: preparing beside it costs nothing."),
        (40.0, 1, 20.0, 8, 25.0, "One thread prepares 25 a second, and the model waits for it."),
        (40.0, 4, 20.0, 8, 50.0, "Four threads prepare 100 a second: the model is the slower stage again."),
        (20.0, 2, 20.0, 1, 25.0, "One core does both: 40 ms of work a request, whatever the threads."),
        (30.0, 4, 10.0, 2, 50.0, "40 ms of work for two cores is 20 ms a request."),
    )


EXERCISES = (
    Exercise(
        id="13a",
        lab=LAB,
        task="Write collate_ms(rows, row_bytes, copy_bytes_per_s): what stacking a batch costs at least.",
        hints=(
            "How many bytes move? The rows are read from where they are and written to where they go.",
            "Bandwidth counts bytes read plus bytes written, so a copy of n bytes moves 2 n.",
        ),
        reference=collate_ms,
        cases=_collate_cases,
    ),
    Exercise(
        id="13b",
        lab=LAB,
        task="Write overlapped_rate(prepare_ms, threads, compute_ms, cores): the rate of two stages side by side.",
        hints=(
            "A pipeline is as fast as its slowest stage. Which is it, with that many preparing threads?",
            "The model counts as one core here. Can the cores do all of prepare_ms + compute_ms for each request?",
        ),
        reference=overlapped_rate,
        cases=_overlap_cases,
    ),
)
