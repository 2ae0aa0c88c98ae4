import pytest
import torch

from labkit.sharding.copying import cloned, copy_into, stacked

VIEWS = {
    "plain": lambda base: base,
    "transposed": lambda base: base.transpose(0, 3),
    "channels last": lambda base: base.contiguous(memory_format=torch.channels_last),
    "every second": lambda base: base[:, ::2],
    "expanded": lambda base: base[:1].expand(4, -1, -1, -1),
    "conjugated": lambda base: torch.complex(base, base).conj(),
    "negated": lambda base: torch.complex(base, base).conj().imag,
    "empty": lambda base: base[:0],
    "a number": lambda base: base[0, 0, 0, 0],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_clone_equals_its_original_and_is_apart_from_it(name):
    tensor = VIEWS[name](torch.randn(2, 4, 3, 5))
    copy = cloned(tensor)
    assert torch.equal(copy, tensor)
    assert copy.stride() == torch.empty_like(tensor).stride()
    assert not tensor.numel() or copy.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("source", VIEWS)
@pytest.mark.parametrize("target", ["plain", "transposed", "channels last"])
def test_copying_between_layouts_keeps_the_values(source, target):
    values = VIEWS[source](torch.randn(4, 4, 4, 4))
    place = VIEWS[target](torch.zeros(4, 4, 4, 4, dtype=values.dtype))
    if place.shape != values.shape:
        place = place.as_strided(values.shape, torch.empty_like(values).stride())
    copy_into(place, values)
    assert torch.equal(place, values)


@pytest.mark.parametrize("name", VIEWS)
def test_stacking_is_what_torch_calls_cat(name):
    whole = VIEWS[name](torch.randn(2, 4, 3, 5))
    if whole.ndim:
        parts = [whole, whole[:1], whole]
        assert torch.equal(stacked(parts), torch.cat(parts))


def test_parts_of_different_types_are_joined_as_torch_does():
    parts = [torch.ones(2), torch.ones(1, dtype=torch.float64)]
    assert stacked(parts).dtype == torch.cat(parts).dtype == torch.float64
