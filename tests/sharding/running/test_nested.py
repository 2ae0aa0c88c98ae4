from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch

from labkit.errors import SettingError
from labkit.sharding.nested import join, map_leaves, rows_of, split

Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize("rows", range(8))
@pytest.mark.parametrize("most_rows", [None, 1, 2, 3, 4, 100])
def test_what_is_split_is_joined_to_the_same(rows, most_rows):
    value = {"x": torch.arange(rows * 3).reshape(rows, 3), "y": (np.arange(rows), None, "text")}
    parts = split(value, most_rows)
    joined = join(parts, [rows_of(part) for part in parts])
    assert torch.equal(joined["x"], value["x"])
    assert np.array_equal(joined["y"][0], value["y"][0])
    assert joined["y"][1:] == (None, "text")


def test_named_tuples_and_ordered_dicts_keep_their_type():
    value = Pair(torch.ones(3), OrderedDict(a=torch.ones(3)))
    joined = join(split(value, 2), [2, 1])
    assert isinstance(joined, Pair)
    assert isinstance(joined.right, OrderedDict)


def test_zero_dimensional_tensors_go_along_with_every_part():
    parts = split((torch.ones(4), torch.tensor(0.5)), 3)
    assert [part[1].item() for part in parts] == [0.5, 0.5]


def test_tensors_that_disagree_about_rows_are_refused():
    with pytest.raises(SettingError, match=r"\[3, 4\]"):
        rows_of((torch.ones(3), torch.ones(4)))


@pytest.mark.parametrize(
    "parts",
    [
        [torch.ones(2), None],
        [{"a": torch.ones(2)}, {"b": torch.ones(1)}],
        [[torch.ones(2)], [torch.ones(1), torch.ones(1)]],
        [1.5, 2.5],
        [torch.tensor(1.0), torch.tensor(2.0)],
    ],
)
def test_parts_that_cannot_be_joined_are_refused(parts):
    with pytest.raises(ValueError, match=r"microbatches returned|leading axis"):
        join(parts, [2, 1])


def test_statistics_that_all_parts_agree_on_are_kept():
    assert join([torch.tensor(3.0), torch.tensor(3.0)], [2, 1]).item() == 3.0
    assert map_leaves(lambda leaf: leaf, [1, None]) == [1, None]
