import importlib
from types import SimpleNamespace

import pytest
import torch

from labkit.devices import Device, attached, best, find, synchronize
from labkit.errors import SettingError, UnknownName

module = importlib.import_module("labkit.devices.attached")


def test_the_cpu_is_always_attached_and_last():
    assert attached()[-1].kind == "cpu"
    assert [device.kind for device in attached()].count("cpu") == 1


def test_every_attached_device_computes_in_each_of_its_dtypes():
    for device in attached():
        for name in device.dtypes:
            ones = torch.ones(8, 8, device=device.id, dtype=getattr(torch, name))
            assert (ones @ ones).eq(8).all()
        synchronize(device.id)


def test_the_best_device_is_an_accelerator_where_there_is_one():
    assert (best().kind != "cpu") == torch.accelerator.is_available()


def test_a_device_is_found_by_id_and_by_kind():
    assert find("cpu") is attached()[-1]
    assert find(best().kind) == best()


def test_an_unknown_device_names_the_known_ones():
    with pytest.raises(UnknownName, match=r"Known: .*cpu"):
        find("abacus:0")


@pytest.mark.parametrize("wrong", [{"memory_bytes": -1}, {"dtypes": ()}])
def test_a_device_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(SettingError):
        Device(**({"id": "x", "kind": "x", "name": "x", "memory_bytes": 1, "dtypes": ("float32",)} | wrong))


@pytest.fixture
def two_cards(monkeypatch):
    """A machine with two made-up CUDA cards; what torch would answer there, nothing is computed on them."""
    limits = []
    cards = SimpleNamespace(
        __name__="torch.cuda",
        get_device_name=lambda index: f"Card {index}",
        get_device_capability=lambda index: ((7, 5), (9, 0))[index],
        set_per_process_memory_fraction=lambda share, index: limits.append((share, index)),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda kind: cards)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator.memory, "get_memory_info", lambda device: (3 * 2**30, 4 * 2**30))
    monkeypatch.setattr(torch.accelerator.memory, "memory_reserved", lambda device: 2**30)
    monkeypatch.setattr(torch.accelerator.memory, "memory_allocated", lambda device: 2**29)
    attached.cache_clear()
    yield limits
    attached.cache_clear()


def test_accelerators_come_first_in_their_order(two_cards):
    assert [(device.id, device.name) for device in attached()[:-1]] == [("cuda:0", "Card 0"), ("cuda:1", "Card 1")]
    assert best().id == find("cuda").id == "cuda:0"
    assert attached()[0].memory_bytes == 4 * 2**30


def test_bfloat16_is_not_promised_where_the_card_emulates_it(two_cards):
    assert ["bfloat16" in device.dtypes for device in attached()[:-1]] == [False, True]


def test_the_fraction_of_the_environment_limits_every_card(two_cards, monkeypatch):
    monkeypatch.setenv("LABKIT_GPU_FRACTION", "0.25")
    attached()
    assert two_cards == [(0.25, 0), (0.25, 1)]


def test_without_a_fraction_no_card_is_limited(two_cards, monkeypatch):
    monkeypatch.delenv("LABKIT_GPU_FRACTION", raising=False)
    attached()
    assert two_cards == []


def test_free_memory_counts_the_allocators_reserve_and_the_granted_share(two_cards, monkeypatch):
    from labkit.devices import memory_free_bytes

    monkeypatch.delenv("LABKIT_GPU_FRACTION", raising=False)
    assert memory_free_bytes("cuda:0") == 3 * 2**30 + 2**30 - 2**29
    monkeypatch.setenv("LABKIT_GPU_FRACTION", "0.25")
    assert memory_free_bytes("cuda:0") == 2**30 - 2**29


def test_waiting_for_a_card_asks_for_that_card(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.accelerator, "synchronize", asked.append)
    synchronize("cpu")
    synchronize("cuda:1")
    assert asked == ["cuda:1"]
