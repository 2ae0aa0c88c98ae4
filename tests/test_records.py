"""The recorder keeps the newest rows, and readers get records whatever was written."""

import pytest

from labkit.records import Recorder, RequestRecord, Tally


def row(number):
    return (number, 0.0, 1.0, 2.0, 3.0, 4.0 + number, "ok", 5, 1, 0, 7, "")


def test_a_plain_tuple_is_read_as_a_record():
    recorder = Recorder()
    recorder.add_requests([row(1)])
    recorder.add_requests([RequestRecord(*row(2))])
    plain, named = recorder.requests()
    assert (type(plain), type(named)) == (RequestRecord, RequestRecord)
    assert (plain.request, plain.latency_s, plain.wait_s, plain.step, plain.copied_bytes) == (1, 5.0, 2.0, 5, 7)
    assert named == row(2)


@pytest.mark.parametrize("capacity", [1, 3, 10])
def test_a_reader_gets_each_row_once_as_far_as_it_is_kept(capacity):
    recorder, cursor, seen = Recorder(capacity), 0, []
    for start in range(0, 40, 4):
        recorder.add_requests([row(number) for number in range(start, start + 4)])
        rows, cursor = recorder.requests_since(cursor)
        seen += [one.request for one in rows]
    assert cursor == 40
    assert seen == [n for start in range(0, 40, 4) for n in range(start, start + 4)[-capacity:]]
    assert [one.request for one in recorder.requests()] == list(range(40))[-capacity:]


def test_a_tally_counts_requests_one_by_one_or_many_at_once():
    tally = Tally()
    tally.count("ok")
    tally.count("ok", 31)
    tally.count("expired", 0)
    assert tally == Tally(ok=32)
