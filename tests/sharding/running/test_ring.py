import os

import pytest
import torch

from labkit.sharding import segment
from labkit.sharding.ring import Ring


@pytest.fixture(params=["nameless", "named"])
def ring(request, monkeypatch):
    monkeypatch.setattr(segment, "_NAMELESS", request.param == "nameless")
    ring = Ring()
    yield ring
    ring.close()


def test_a_value_stays_in_its_slot_until_the_slot_is_freed(ring):
    first, _ = ring.put(torch.ones(4))
    second, _ = ring.put(torch.zeros(4))
    assert first != second
    assert torch.equal(ring.take(first), torch.ones(4))
    assert torch.equal(ring.take(first), torch.ones(4))


def test_a_freed_slot_is_used_again(ring):
    first, _ = ring.put("a")
    ring.free(first)
    second, _ = ring.put("b")
    assert (second, len(ring), ring.in_use) == (first, 1, 1)


def test_a_value_larger_than_a_slot_gets_a_larger_one_in_its_place(ring):
    dropped = []
    ring.on_drop = dropped.append
    small, _ = ring.put("a")
    ring.free(small)
    value = torch.randn(100_000)
    large, written = ring.put(value)
    assert written > value.nbytes
    assert dropped == [small]
    assert len(ring) == 1
    assert torch.equal(ring.take(large), value)


def test_the_smallest_slot_that_will_do_is_taken(ring):
    slots = [ring.reserve(size) for size in (1_000_000, 70_000, 300_000)]
    for slot in slots:
        ring.free(slot)
    assert ring.reserve(100_000) == slots[1]


def test_closing_leaves_no_shared_memory_and_no_descriptor(ring):
    before = set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))
    other = Ring()
    for _ in range(5):
        other.put(torch.ones(1000))
    other.close()
    assert (set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))) == before
