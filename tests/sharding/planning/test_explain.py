import pytest

from labkit.errors import SettingError
from labkit.sharding.partition import partition
from labkit.sharding.problem import Problem


def refusal(problem, **options):
    with pytest.raises(SettingError) as raised:
        partition(problem, **options)
    return str(raised.value)


def test_a_layer_that_fits_nowhere_is_named_with_the_cap_and_what_is_missing():
    text = refusal(
        Problem(
            [[1, 1]] * 2, param_bytes=[1e9, 5e9], memory_bytes=[2e9, 4e9], names=("stem", "head"), devices=("a", "b")
        )
    )
    assert "'head' needs 5 GB" in text
    assert "'b', has 4 GB: 1 GB are missing" in text
    assert "at least 5 GB" in text


def test_working_memory_counts():
    text = refusal(Problem([[1]], param_bytes=[3], work_bytes=[4], memory_bytes=[6]))
    assert "needs 7 bytes" in text
    assert "1 bytes are missing" in text


def test_layers_that_cannot_be_separated_are_named_together_with_the_reason():
    text = refusal(
        Problem([[1] * 3] * 2, param_bytes=[3, 3, 1], memory_bytes=[5, 5], refusals={1: "it works in place"})
    )
    assert "Layers '0' to '1' cannot be separated and need 6 bytes" in text
    assert "it works in place" in text


def test_what_would_be_enough_is_enough_and_one_byte_less_is_not():
    problem = Problem([[1] * 4] * 2, param_bytes=[4, 4, 4, 4], memory_bytes=[9, 5], devices=("a", "b"))
    text = refusal(problem)
    assert "The devices hold the first 3 of 4 layers in this order, and '3' finds no place" in text
    assert "all layers need 16 bytes and the devices have 14 bytes" in text
    assert "'a' with 12 bytes (3 bytes more)" in text
    assert partition(Problem([[1] * 4] * 2, param_bytes=[4] * 4, memory_bytes=[12, 5])).boundaries == (0, 3, 4)
    refusal(Problem([[1] * 4] * 2, param_bytes=[4] * 4, memory_bytes=[11, 5]))


def test_another_order_is_proposed_where_it_helps():
    problem = Problem([[1] * 2] * 2, param_bytes=[2, 6], memory_bytes=[6, 2])
    text = refusal(problem)
    assert "order='any' finds one that fits" in text
    assert partition(problem, order="any").devices == (1, 0)


def test_enough_bytes_in_total_that_no_cut_can_share_out_are_told_apart():
    text = refusal(Problem([[1] * 3] * 2, param_bytes=[4, 4, 4], memory_bytes=[6, 7]), order="any")
    assert "no cut shares that out" in text
    assert "in any order" in text
