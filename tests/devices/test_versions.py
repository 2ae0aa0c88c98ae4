from dataclasses import FrozenInstanceError
from importlib.metadata import version

import pytest

from labkit.devices import versions


def test_versions_are_those_of_the_installed_distributions():
    now = versions()
    assert (now.torch.partition("+")[0], now.numpy) == (version("torch").partition("+")[0], version("numpy"))


def test_versions_read_as_a_mapping():
    now = versions()
    assert dict(now) == {name: now[name] for name in now}
    assert {"labkit", "python", "torch", "numpy", "cuda"} <= set(now)
    with pytest.raises(KeyError):
        now["jupyter"]


def test_versions_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        versions().torch = "2"
