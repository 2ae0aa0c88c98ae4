"""Staging slots: never handed out twice, counted exactly."""

import os
import threading
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching.pool import StagingPool, StagingRing, side_by_side

F32 = torch.float32


@given(st.integers(1, 6), st.lists(st.one_of(st.just("acquire"), st.integers(0, 20)), max_size=80))
def test_no_slot_is_handed_out_twice_while_it_is_in_use_and_the_counters_are_exact(slots, history):
    pool, held, peak, overflows = StagingPool(slots), [], 0, 0
    for step in history:
        if step == "acquire":
            full = sum(slot.index >= 0 for slot in held) == slots
            slot = pool.acquire((2,), F32)
            assert (slot.index == -1) == full
            overflows += full
            held.append(slot)
        elif held:
            held.pop(step % len(held)).release()
        inside = [slot for slot in held if slot.index >= 0]
        assert len({slot.index for slot in inside}) == len(inside)
        assert len({slot.tensor.data_ptr() for slot in held}) == len(held)
        assert all(slot.tensor.data_ptr() == slot.ring.block[slot.index].data_ptr() for slot in inside)
        peak = max(peak, len(inside))
        seen = pool.snapshot()
        assert (seen.used_bytes, seen.peak_bytes, seen.overflows) == (8 * len(inside), 8 * peak, overflows)
        assert seen.held_bytes == (8 * slots if peak else 0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True))
def test_slots_are_side_by_side_exactly_where_their_rows_form_one_block(order):
    pool = StagingPool(10)
    slots = [pool.acquire((3,), F32) for _ in range(10)]
    chosen = [slots[index] for index in order]
    assert side_by_side(chosen) == (order == list(range(order[0], order[0] + len(order))))


def test_slots_of_two_rings_or_outside_a_ring_are_never_side_by_side():
    pool = StagingPool(1)
    first, outside = pool.acquire((3,), F32), pool.acquire((3,), F32)
    other = pool.acquire((4,), F32)
    assert not side_by_side([first, outside])
    assert not side_by_side([outside])
    assert not side_by_side([first, other])


def test_shape_and_dtype_each_have_a_ring():
    pool = StagingPool(2)
    rings = {id(pool.acquire(shape, dtype).ring) for shape in [(2,), (3,)] for dtype in [F32, torch.int64]}
    assert len(rings) == 4
    assert pool.snapshot().used_bytes == 4 * 2 + 8 * 2 + 4 * 3 + 8 * 3


def test_ever_new_shapes_hold_no_more_than_the_allowed_number_of_idle_rings():
    pool = StagingPool(1, max_shapes=8)
    kept = pool.acquire((1000,), F32)
    kept.tensor.fill_(7)
    for size in range(1, 100):
        pool.acquire((size,), F32).release()
    assert len(pool._rings) <= 8
    assert pool.acquire((1000,), F32).index == -1, "the ring that is in use must have been kept"
    assert kept.tensor.sum() == 7000


def test_rows_of_a_resized_pool_stay_valid_until_they_are_released():
    pool = StagingPool(1)
    old = pool.acquire((2,), F32)
    old.tensor.fill_(1)
    larger = pool.resized(4)
    new = [larger.acquire((2,), F32) for _ in range(4)]
    for slot in new:
        slot.tensor.fill_(2)
    assert side_by_side(new)
    assert old.tensor.tolist() == [1, 1]
    old.release()
    assert (pool.snapshot().used_bytes, larger.snapshot().used_bytes) == (0, 32)


def test_threads_never_share_a_slot():
    pool, inside, clashes = StagingPool(8), Counter(), []

    def work():
        for _ in range(1500):
            slot = pool.acquire((2,), F32)
            if slot.index >= 0:
                inside[slot.index] += 1
                if inside[slot.index] != 1:
                    clashes.append(slot.index)
                inside[slot.index] -= 1
            slot.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert pool.snapshot().used_bytes == 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_a_slot_that_was_never_written_holds_zeros(dtype):
    assert not StagingPool(2).acquire((5,), dtype).tensor.any()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_worker_writes_into_the_same_rows():
    ring = StagingRing(4, (3,), torch.float32)
    slot = ring.acquire()
    child = os.fork()
    if child == 0:
        slot.tensor.numpy()[:] = 7.0  # numpy, since a forked torch may not start threads
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert slot.tensor.tolist() == [7.0, 7.0, 7.0]
