"""Lessons by bucket, bounded."""

from labkit.batching.learned import Learned


def test_the_lesson_of_a_key_is_kept_and_the_key_used_longest_ago_is_forgotten():
    learned = Learned()
    first = learned.of("kept")
    for number in range(1000):
        learned.of(number)
        assert learned.of("kept") is first
    assert len(learned._lessons) == 256
    before = learned.of(999)
    assert learned.of(0) is not before
    assert learned.of(999) is before


def test_only_buckets_whose_cap_is_lowered_are_named():
    learned = Learned()
    learned.of("fine")
    learned.of("short").memory.exceeded(32)
    assert learned.lowered(32) == {"short": 16}
    assert learned.lowered(8) == {}
