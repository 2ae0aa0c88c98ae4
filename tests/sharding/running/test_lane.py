"""What a lane does on an accelerator, shown on a stand-in that writes down what it is asked for."""

import contextlib

import torch

from labkit.sharding.lane import Lane, cast
from labkit.sharding.values import pack
from labkit.sharding.worker import Mapped


class Recorder:
    """In place of `torch.cuda`."""

    def __init__(self):
        self.calls = []

    def Stream(self, device):  # noqa: N802
        self.calls.append(("stream of", str(device)))
        return self

    def synchronize(self):
        self.calls.append("waited for the stream")

    @contextlib.contextmanager
    def device(self, device):
        self.calls.append("device entered")
        yield

    @contextlib.contextmanager
    def stream(self, stream):
        assert stream is self
        self.calls.append("stream entered")
        yield

    def empty_cache(self):
        self.calls.append("cache given back")

    def cudart(self):
        return self

    def cudaHostRegister(self, address, size_bytes, flags):  # noqa: N802
        self.calls.append(("pinned", size_bytes))
        return 0

    def cudaHostUnregister(self, address):  # noqa: N802
        self.calls.append("unpinned")
        return 0


def accelerator(monkeypatch):
    """A lane on the meta device, which has no memory, driven through the recorder."""
    module = Recorder()
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    return Lane("meta"), module


def test_an_accelerators_lane_has_a_stream_of_its_own_and_waits_for_that_alone(monkeypatch):
    lane, module = accelerator(monkeypatch)
    with lane.entered():
        assert torch.is_inference_mode_enabled()
        assert lane.move({"rows": torch.ones(2), "none": None})["rows"].device.type == "meta"
        lane.finish()
    lane.release()
    assert module.calls == [
        ("stream of", "meta"),
        "device entered",
        "stream entered",
        "waited for the stream",
        "cache given back",
    ]


def test_a_slot_is_pinned_once_for_an_accelerator_and_unpinned_before_it_goes(monkeypatch):
    lane, module = accelerator(monkeypatch)
    parcel = pack(torch.ones(3))
    memory = memoryview(bytearray(4096))
    parcel.write(memory)

    class Segment:
        size_bytes = 4096

        def __init__(self):
            self.memory = memory

        def close(self):
            module.calls.append("unmapped")

    shelf = Mapped()
    shelf._segments[7] = Segment()
    for _ in range(2):
        assert shelf.read(7, lane).device.type == "meta"
    shelf.drop((7,))
    assert module.calls[1:] == [("pinned", 4096), "unpinned", "unmapped"]


def test_on_the_cpu_values_are_copied_and_nothing_is_pinned():
    lane, value = Lane("cpu"), torch.ones(2)
    assert lane.own(value) is not value
    assert lane.move(value) is value
    assert not lane.pin(memoryview(bytearray(64)))


def test_only_floating_tensors_are_cast():
    value = {"floats": torch.ones(1), "ids": torch.ones(1, dtype=torch.int64), "flag": True}
    changed = cast(value, torch.float16)
    assert changed["floats"].dtype == torch.float16
    assert changed["ids"] is value["ids"]
    assert cast(value, None) is value
