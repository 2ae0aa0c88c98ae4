"""Taking failed batches apart, and the cap that is learned when memory runs out."""

import gc
import math
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.batching.faults import Failure, MemoryCap, detached, is_out_of_memory, run_apart
from labkit.errors import ModelFailed, OutOfMemory


class Poisoned:
    """Squares its rows, and raises where one of the guilty is among them or where there are more than fit."""

    def __init__(self, guilty=(), fits=math.inf):
        self.guilty, self.fits, self.runs = set(guilty), fits, []

    def __call__(self, rows):
        self.runs.append(list(rows))
        if len(rows) > self.fits:
            raise torch.OutOfMemoryError("out of memory")
        if self.guilty & set(rows):
            raise ValueError("guilty")
        return [row * row for row in rows]


def answers(parts):
    return {row: output for part, outputs in parts for row, output in zip(part, outputs, strict=True)}


@given(st.integers(1, 40), st.sets(st.integers(0, 39)))
def test_exactly_the_guilty_rows_fail_and_the_runs_are_bounded(count, guilty):
    guilty &= set(range(count))
    model = Poisoned(guilty)
    got = answers(run_apart(range(count), model))
    assert list(got) == list(range(count))
    for row, output in got.items():
        if row in guilty:
            assert isinstance(output.error, ModelFailed)
            assert str(output.error.__cause__) == "guilty"
        else:
            assert output == row * row
    depth = math.ceil(math.log2(count)) if count > 1 else 0
    assert len(model.runs) <= min(2 * count - 1, 1 + 2 * len(guilty) * depth)


@given(st.integers(1, 40), st.integers(1, 40), st.sets(st.integers(0, 39)))
def test_out_of_memory_splits_until_it_fits_and_blames_no_row(count, fits, guilty):
    model, short = Poisoned(guilty, fits), []
    got = answers(run_apart(range(count), model, on_out_of_memory=short.append))
    assert {row for row, output in got.items() if isinstance(output, Failure)} == guilty & set(range(count))
    assert short == [len(rows) for rows in model.runs if len(rows) > fits]


@given(st.integers(2, 20))
def test_without_isolation_a_batch_fails_whole_after_one_run(count):
    model = Poisoned({0})
    got = answers(run_apart(range(count), model, isolate=False))
    assert len(model.runs) == 1
    errors = [output.error for output in got.values()]
    assert len({id(error) for error in errors}) == count, "each sender needs an exception of its own"


def test_without_isolation_running_out_of_memory_is_still_survived():
    got = answers(run_apart(range(8), Poisoned(fits=2), isolate=False))
    assert got == {row: row * row for row in range(8)}


def test_a_row_that_does_not_fit_alone_is_told_so():
    ((_, (failure,)),) = run_apart([1], Poisoned(fits=0))
    assert isinstance(failure.error, OutOfMemory)


def test_what_was_answered_stays_answered_when_the_worker_dies_later():
    def deadly(rows):
        if 3 in rows:
            raise SystemExit if len(rows) == 1 else ValueError
        return list(rows)

    parts = run_apart(range(4), deadly)
    assert next(parts) == (range(2), [0, 1])
    assert next(parts) == (range(2, 3), [2])
    with pytest.raises(SystemExit):
        next(parts)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("x"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate"),
    ],
)
def test_out_of_memory_is_recognised_on_every_device(error):
    assert is_out_of_memory(error)


def test_other_errors_are_not_taken_for_out_of_memory():
    assert not is_out_of_memory(ValueError("out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes differ"))


def test_a_caught_exception_keeps_no_tensor_of_any_frame_in_its_chain_but_tells_its_lines():
    kept = []

    def inner():
        tensor = torch.zeros(3)
        kept.append(weakref.ref(tensor))
        raise KeyError("inner")

    def outer():
        tensor = torch.zeros(3)
        kept.append(weakref.ref(tensor))
        try:
            inner()
        except KeyError as error:
            raise ValueError("outer") from error

    gc.disable()
    try:
        try:
            outer()
        except ValueError as error:
            caught = detached(error)
        assert [one() for one in kept] == [None, None]
    finally:
        gc.enable()
    assert 'raise ValueError("outer") from error' in caught.__notes__[0]
    assert 'raise KeyError("inner")' in caught.__cause__.__notes__[0]


def test_an_exception_that_is_made_once_and_raised_often_gathers_no_notes():
    always = ValueError("always")

    def refuse(rows):
        raise always

    for _ in range(5):
        list(run_apart([1], refuse))
    assert len(always.__notes__) == 1


def test_a_chain_of_exceptions_that_is_a_circle_is_no_endless_loop():
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert detached(first) is first


class TestMemoryCap:
    @given(st.lists(st.tuples(st.booleans(), st.integers(1, 64)), max_size=200), st.integers(1, 64))
    @settings(deadline=None)
    def test_it_never_exceeds_half_of_what_failed_last_unless_it_recovered_step_by_step(self, history, setting):
        cap, bound, good = MemoryCap(patience=3), math.inf, 0
        for short, rows in history:
            if short:
                cap.exceeded(rows)
                bound, good = (min(bound, rows // 2), 0) if rows > 1 else (bound, good)
            else:
                cap.succeeded(rows)
                good += rows >= bound
                if good == 3:
                    bound, good = bound + 1, 0
            assert cap.within(setting) == min(setting, bound)

    def test_a_smaller_setting_for_a_while_does_not_make_it_forget(self):
        cap = MemoryCap()
        cap.exceeded(32)
        assert (cap.within(4), cap.within(64)) == (4, 16)


def test_a_row_that_is_too_large_alone_does_not_shrink_the_batches_of_others():
    cap = MemoryCap()
    cap.exceeded(1)
    assert cap.within(32) == 32
    cap.exceeded(8)
    cap.exceeded(1)
    assert cap.within(32) == 4
