"""Preprocessing beside compute, and batches that copy nothing."""

from threading import Event

import numpy as np
import pytest
import torch

from labkit.batching import Batcher, Lengths
from labkit.errors import PrepareFailed, SettingError


class InPlace:
    """Writes the number n into a row of `width`, straight into staging memory."""

    def __init__(self, width=4, real_units=None):
        self.width, self.real_units = width, real_units

    def __call__(self, n):
        return torch.full((self.width,), float(n))

    def into(self, n, place):
        row = place((self.width,), torch.float32, self.real_units)
        row.fill_(n)
        return row


@pytest.fixture
def staged(gate, until):
    """`staged(prepare, count)`: a batcher with prepared rows 1..count behind a running row 0, and their futures."""
    made = []

    def make(prepare, count, **options):
        batcher = Batcher(gate, prepare=prepare, **options)
        made.append(batcher)
        futures = [batcher.submit(0)]
        gate.wait_begun()
        futures += [batcher.submit(n) for n in range(1, count + 1)]
        until(lambda: batcher._dispatcher.queued_rows == count)
        return batcher, futures

    yield make
    gate.open()
    for batcher in made:
        batcher.close()


def steps(batcher):
    return [step for step in batcher.records.steps() if step.stage == "compute"]


def test_batches_in_order_of_arrival_copy_nothing(staged, gate):
    batcher, futures = staged(InPlace(), 24, max_rows=8)
    gate.open()
    assert [future.result(20)[0].item() for future in futures] == list(range(25))
    assert [(step.rows, step.copied_bytes) for step in steps(batcher)] == [(1, 0), (8, 0), (8, 0), (8, 0)]
    assert all(row.copied_bytes == 0 for row in batcher.records.requests())


def test_without_a_place_to_write_to_each_batch_is_one_copy_and_it_is_counted(staged, gate):
    batcher, futures = staged(lambda n: torch.full((4,), float(n)), 8, max_rows=8)
    gate.open()
    assert [future.result(20)[0].item() for future in futures] == list(range(9))
    assert [step.copied_bytes for step in steps(batcher)] == [16, 8 * 16]
    assert sum(row.copied_bytes for row in batcher.records.requests()) == 9 * 16


def test_a_withdrawn_neighbour_costs_one_gather_and_it_is_counted(staged, gate):
    batcher, futures = staged(InPlace(), 8, max_rows=8)
    assert futures[3].cancel()
    gate.open()
    wanted = [0, 1, 2, 4, 5, 6, 7, 8]
    assert [futures[n].result(20)[0].item() for n in wanted] == wanted
    assert [(step.rows, step.copied_bytes) for step in steps(batcher)] == [(1, 0), (7, 7 * 16)]


def test_parts_of_a_failed_batch_are_still_views(gate, until):
    def strict(batch):
        gate(batch)
        if 3 in batch[:, 0]:
            raise ValueError("three")
        return batch

    with Batcher(strict, prepare=InPlace(), max_rows=8) as batcher:
        batcher.submit(0)
        gate.wait_begun()
        futures = [batcher.submit(n) for n in range(1, 9)]
        until(lambda: batcher._dispatcher.queued_rows == 8)
        gate.open()
        assert [future.exception(20) is None for future in futures] == [n != 3 for n in range(1, 9)]
        assert all(step.copied_bytes == 0 for step in steps(batcher))


def test_answers_are_not_overwritten_by_later_rows_in_the_same_staging_memory():
    with Batcher(lambda batch: batch, prepare=InPlace(), max_rows=2) as batcher:
        kept = [batcher.submit(n).result(20) for n in range(50)]
        assert [row.tolist() for row in kept] == [[n] * 4 for n in range(50)]


@pytest.mark.parametrize(
    "view",
    [
        lambda row: row[:],
        lambda row: row.view(2, 2).view(4),
        lambda row: torch.from_numpy(row.numpy()),
        lambda row: row.detach(),
    ],
)
def test_a_row_that_is_only_a_view_of_its_slot_is_not_overwritten(staged, gate, view):
    class Viewing(InPlace):
        def into(self, n, place):
            return view(super().into(n, place))

    _, futures = staged(Viewing(), 20, max_rows=4)
    gate.open()
    assert [future.result(20).tolist() for future in futures] == [[n] * 4 for n in range(21)]


def test_more_rows_than_slots_are_still_answered_right(staged, gate):
    batcher, futures = staged(InPlace(), 40, max_rows=2)
    assert batcher.snapshot().pool.overflows == 40 - 7
    gate.open()
    assert [future.result(20)[0].item() for future in futures] == list(range(41))
    assert sum(step.copied_bytes for step in steps(batcher)) > 0


def test_units_of_rows_written_in_place_are_reported_by_name_or_position(gate):
    class Named(InPlace):
        def into(self, n, place):
            return place((8,), dtype=torch.float32, real_units=3).fill_(n)

    gate.open()
    with Batcher(gate, prepare=Named()) as batcher:
        batcher.submit(1).result(20)
        (step,) = steps(batcher)
    assert (step.real_units, step.computed_units) == (3, 8)


def test_rows_of_variable_length_are_padded_by_bucket_and_the_waste_is_reported(gate, until):
    with Batcher(gate, pad=Lengths((4, 8), value=-1), max_rows=8) as batcher:
        batcher.submit(torch.zeros(1))
        gate.wait_begun()
        lengths = [3, 5, 4, 8, 1]
        futures = [batcher.submit(np.arange(length)) for length in lengths]
        until(lambda: batcher._dispatcher.queued_rows == 5)
        gate.open()
        for length, future in zip(lengths, futures, strict=True):
            edge = 4 if length <= 4 else 8
            assert future.result(20).tolist() == [*range(length), *[-1] * (edge - length)]
        done = [(step.rows, step.real_units, step.computed_units) for step in steps(batcher)]
        assert sorted(done) == [(1, 1, 4), (2, 13, 16), (3, 8, 12)]


def test_padding_to_an_allowed_size_counts_as_computed_units(gate):
    gate.open()
    with Batcher(gate, prepare=InPlace(4, real_units=3), sizes=(4,)) as batcher:
        batcher.submit(1).result(20)
        (step,) = steps(batcher)
    assert (step.rows, step.padded_rows, step.real_units, step.computed_units) == (1, 3, 3, 16)


def test_a_row_longer_than_the_last_bucket_fails_alone():
    with Batcher(lambda batch: batch, pad=Lengths((4,))) as batcher:
        with pytest.raises(PrepareFailed, match=r"length 5.*4"):
            batcher.submit(torch.zeros(5)).result(20)
        assert batcher.submit(torch.zeros(4)).result(20).shape == (4,)


def test_padding_beside_a_prepare_that_places_its_rows_itself_is_refused():
    with pytest.raises(SettingError, match="pad is given"):
        Batcher(list, prepare=InPlace(), pad=Lengths((4,)))


def test_the_next_rows_are_prepared_while_a_batch_runs(gate):
    prepared = []

    def prepare(n):
        prepared.append(n)
        if len(prepared) == 4:
            all_prepared.set()
        return n

    all_prepared = Event()
    with Batcher(gate, prepare=prepare) as batcher:
        batcher.submit(0)
        gate.wait_begun()
        futures = [batcher.submit(n) for n in (1, 2, 3)]
        assert all_prepared.wait(20), "nothing was prepared while the model was busy"
        assert batcher.snapshot().running == 1
        gate.open()
        assert [future.result(20) for future in futures] == [1, 2, 3]
    assert sum(step.stage == "prepare" for step in batcher.records.steps()) == 4


def test_the_pool_is_empty_at_the_end_and_knows_its_high_water_mark(staged, gate):
    batcher, futures = staged(InPlace(), 12, max_rows=4)
    for future in futures[9:]:
        future.cancel()
    assert batcher.snapshot().pool.used_bytes == 9 * 16
    gate.open()
    batcher.close()
    pool = batcher.snapshot().pool
    assert (pool.used_bytes, pool.peak_bytes, pool.held_bytes) == (0, 13 * 16, 16 * 16)
