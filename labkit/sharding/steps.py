"""The rows of executed steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from labkit.records import Recorder, StepOutcome, StepRecord
from labkit.sharding.hand import Flight, Hand
from labkit.sharding.job import Done

__all__ = ["StepLog"]


class StepLog:
    """Numbers the steps and writes their rows; `queued_rows(first, last)` says what waits for these layers."""

    def __init__(self, records: Recorder, cap_rows: int | None, queued_rows: Callable[[int, int], int]) -> None:
        self._records, self._cap_rows, self._queued_rows = records, cap_rows, queued_rows
        self._numbers = count()

    def add(
        self,
        hand: Hand,
        flight: Flight,
        started_s: float,
        finished_s: float,
        outcome: StepOutcome,
        done: Done | None = None,
    ) -> int:
        """Write a row and return its number; bytes and seconds of copying are known of a step that is `done`."""
        step, microbatch = next(self._numbers), flight.microbatch
        row = StepRecord(
            step=step,
            stage=f"stage{flight.key.stage}",
            worker=hand.seat.number if hand.seat else -1,
            device=hand.seat.device if hand.seat else "",
            started_s=started_s,
            finished_s=finished_s,
            rows=microbatch.rows,
            cap=self._cap_rows or microbatch.rows,
            outcome=outcome,
            queued_rows=self._queued_rows(flight.first, flight.last),
            copied_bytes=microbatch.source_bytes + done.written_bytes if done else 0,
            collate_s=done.moved_s if done else 0.0,
        )
        self._records.add_steps([row])
        return step
