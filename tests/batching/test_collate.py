"""Rows into batches and outputs into rows, against plain Python lists."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labkit.batching.collate import Lengths, collate, default_key, split
from labkit.batching.pool import StagingPool
from labkit.batching.runner import keep
from labkit.errors import SettingError


class Row:
    """What collate reads of a request."""

    def __init__(self, row, slot=None):
        self.row, self.slot = row, slot


@given(st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=1, max_size=6), st.integers(0, 4))
def test_a_batch_of_tensors_or_arrays_holds_the_rows_in_order_and_repeats_the_last_as_padding(values, extra):
    size, wanted = len(values) + extra, values + [values[-1]] * extra
    tensors, copied = collate([Row(torch.tensor(value)) for value in values], size)
    assert tensors.tolist() == wanted
    assert copied == tensors.nbytes == size * 3 * 8
    arrays, copied = collate([Row(np.array(value)) for value in values], size)
    assert arrays.tolist() == wanted
    assert copied == size * 3 * 8
    things, copied = collate([Row(tuple(value)) for value in values], size)
    assert things == [tuple(value) for value in wanted]
    assert copied == 0


@given(st.permutations(range(5)), st.integers(1, 5))
def test_staged_rows_are_copied_only_where_they_are_not_one_block(order, count):
    pool = StagingPool(5)
    slots = [pool.acquire((2,), torch.float32) for _ in range(5)]
    for n, slot in enumerate(slots):
        slot.tensor.fill_(n)
    rows = [Row(slots[n].tensor, slots[n]) for n in order[:count]]
    batch, copied = collate(rows, count)
    assert batch[:, 0].tolist() == list(order[:count])
    straight = list(order[:count]) == list(range(order[0], order[0] + count))
    assert copied == (0 if straight else count * 8)
    assert (batch.untyped_storage().data_ptr() == slots[0].ring.block.untyped_storage().data_ptr()) == straight


@given(st.integers(1, 6), st.integers(0, 3))
def test_every_kind_of_output_is_cut_into_the_first_rows(rows, extra):
    size = rows + extra
    table = torch.arange(size * 2).reshape(size, 2)
    assert [row.tolist() for row in split(table, rows, size)] == table[:rows].tolist()
    assert [row.tolist() for row in split(table.numpy(), rows, size)] == table[:rows].tolist()
    assert split(list(range(size)), rows, size) == list(range(rows))
    pairs = split((table, table.numpy() + 1), rows, size)
    assert [(a.tolist(), b.tolist()) for a, b in pairs] == [(r, [x + 1 for x in r]) for r in table[:rows].tolist()]
    named = split({"a": table, "b": list("abcdefghi"[:size])}, rows, size)
    assert [(row["a"].tolist(), row["b"]) for row in named] == list(
        zip(table[:rows].tolist(), "abcdefghi"[:rows], strict=True)
    )


@pytest.mark.parametrize(
    "output", [torch.zeros(3), torch.tensor(1.0), [1, 2, 3], (torch.zeros(4), torch.zeros(3)), {"a": [1]}, None, 5]
)
def test_an_output_of_the_wrong_length_is_refused(output):
    with pytest.raises(SettingError, match="for a batch of 4"):
        split(output, 4, 4)


@given(st.lists(st.integers(1, 100), min_size=1, unique=True).map(sorted).map(tuple), st.integers(0, 120))
def test_a_length_is_padded_to_the_next_edge(edges, length):
    lengths = Lengths(edges)
    if length > edges[-1]:
        with pytest.raises(SettingError, match=f"length {length}.*{edges[-1]}"):
            lengths.edge(length)
    else:
        assert lengths.edge(length) == min(edge for edge in edges if edge >= length)


@pytest.mark.parametrize("edges", [(), (0, 4), (4, 4), (8, 4), (-1,)])
def test_edges_that_do_not_rise_are_refused(edges):
    with pytest.raises(SettingError):
        Lengths(edges)


def test_rows_that_cannot_share_a_batch_have_different_keys():
    rows = [torch.zeros(2), torch.zeros(3), torch.zeros(2, dtype=torch.int64), np.zeros(2), np.zeros(2, np.int8), "x"]
    assert len({default_key(row) for row in rows}) == len(rows)
    assert default_key("text") == default_key({"any": "thing"})


@pytest.mark.parametrize(
    "cut",
    [
        lambda batch: batch,
        lambda batch: batch[:, 1:],
        lambda batch: batch.t().t(),
        lambda batch: (batch, batch[:, :1]),
        lambda batch: {"a": [batch]},
        lambda batch: batch.numpy(),
        lambda batch: batch.numpy()[:, ::2],
        lambda batch: torch.return_types.max((batch, batch)),
    ],
)
def test_no_output_is_a_view_of_the_batch_it_came_from(cut):
    batch = torch.arange(12.0).reshape(3, 4)

    def flat(output):
        if isinstance(output, dict):
            output = list(output.values())
        if isinstance(output, (list, tuple)):
            return [value for part in output for value in flat(part)]
        return np.asarray(output).ravel().tolist()

    before = flat(cut(batch))
    kept = keep(cut(batch), batch)
    batch.fill_(-1)
    assert flat(kept) == before


def test_an_output_of_its_own_is_not_copied():
    batch, own, array = torch.zeros(3, 2), torch.ones(3, 2), np.ones((3, 2))
    assert keep(own, batch) is own
    assert keep(array, batch) is array


def test_a_list_of_numbers_that_the_model_keeps_is_not_handed_out():
    mine = [[1, 2], [3, 4]]
    kept = keep(mine, None)
    mine[0][0] = mine[1] = 99
    assert kept == [[1, 2], [3, 4]]
