import gc
import weakref

import numpy as np
import pytest
import torch

from labkit.sharding.values import pack, unpack


def carried(value):
    parcel = pack(value)
    memory = memoryview(bytearray(parcel.total_bytes))
    parcel.write(memory)
    return unpack(memory)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool", "complex64", "float8_e4m3fn"],
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 5)])
def test_every_dtype_and_shape_arrives_bit_for_bit(dtype, shape):
    tensor = torch.randint(0, 2, shape).to(getattr(torch, dtype))
    arrived = carried(tensor)
    assert arrived.dtype == tensor.dtype
    assert arrived.shape == tensor.shape
    if tensor.numel():
        assert torch.equal(arrived.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize(
    "make",
    [
        lambda base: base.transpose(0, 2),
        lambda base: base[:, ::2],
        lambda base: base[1:, :, 1],
        lambda base: base[:1].expand(6, -1, -1),
        lambda base: base.split(2, dim=1)[1],
        lambda base: base.flip(0),
    ],
)
def test_views_that_are_not_contiguous_keep_their_values(make):
    tensor = make(torch.arange(60.0).reshape(3, 4, 5))
    assert torch.equal(carried(tensor), tensor)


def test_dense_strides_survive_so_that_channels_last_stays_channels_last():
    tensor = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    arrived = carried(tensor)
    assert arrived.stride() == tensor.stride()
    assert torch.equal(arrived, tensor)


def test_a_conjugated_view_arrives_as_its_values():
    tensor = torch.randn(4, dtype=torch.complex64)
    assert torch.equal(carried(tensor.conj()), tensor.conj().resolve_conj())


def test_nested_structure_with_none_plain_values_and_numpy_survives():
    value = {"a": (torch.ones(2), None, [1, "two", 3.0]), 5: {"array": np.arange(6).reshape(2, 3).T}, "empty": ()}
    arrived = carried(value)
    assert arrived["a"][1] is None
    assert arrived["a"][2] == [1, "two", 3.0]
    assert arrived["empty"] == ()
    assert torch.equal(arrived["a"][0], torch.ones(2))
    assert np.array_equal(arrived[5]["array"], value[5]["array"])


def test_a_tensor_that_occurs_twice_is_carried_once_and_stays_one():
    tensor = torch.randn(1000)
    first, second = carried((tensor, tensor))
    assert first is second
    assert pack((tensor, tensor)).total_bytes < 1.5 * tensor.nbytes


def test_what_arrives_is_the_receivers_to_change():
    parcel = pack({"tensor": torch.zeros(3), "array": np.zeros(3)})
    memory = memoryview(bytearray(parcel.total_bytes))
    parcel.write(memory)
    arrived = unpack(memory)
    arrived["tensor"].add_(1)
    arrived["array"] += 1
    again = unpack(memory)
    assert not again["tensor"].any()
    assert not again["array"].any()


def test_sparse_tensors_and_other_subclasses_are_pickled_whole():
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(carried({"sparse": sparse})["sparse"].to_dense(), torch.eye(3))


def test_a_tensor_with_a_gradient_history_arrives_without_it():
    weight = torch.ones(2, requires_grad=True)
    arrived = carried(weight * 2)
    assert not arrived.requires_grad
    assert torch.equal(arrived, torch.full((2,), 2.0))


def test_what_was_packed_is_let_go_of_without_waiting_for_garbage_collection():
    array, memory = np.ones(3), memoryview(bytearray(4096))
    watched = weakref.ref(array)
    gc.disable()
    try:
        parcel = pack({"x": torch.ones(8), "y": array})
        parcel.write(memory)
        del array, parcel
        assert watched() is None
    finally:
        gc.enable()
