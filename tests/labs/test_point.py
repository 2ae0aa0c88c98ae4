from dataclasses import FrozenInstanceError

import pytest

from labkit.labs import Note, Point


@pytest.mark.parametrize(("item", "field"), [(Point("p99", 1.0, 2.0), "y"), (Note("Warming up"), "text")])
def test_what_a_lab_yields_is_frozen_and_small(item, field):
    assert not hasattr(item, "__dict__")
    with pytest.raises(FrozenInstanceError):
        setattr(item, field, "other")
