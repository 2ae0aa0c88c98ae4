"""Groups of two ranks over gloo, both ends in this process."""

import numpy as np
import pytest
import torch

from labkit.sharding.exchange import Exchange
from labkit.sharding.lost import Lost
from labkit.sharding.nested import leaves
from labkit.sharding.wire import Wire, announce

CPU = torch.device("cpu")
HERE = "127.0.0.1"
LIMIT_S = 30.0


class Ends:
    """A sender and a receiver, and wires from one to the other."""

    def __init__(self):
        self.sender, self.receiver = Exchange(HERE), Exchange(HERE)
        self._port = self.sender.listen()

    def wire(self, epoch=0):
        return Wire(f"1>2/{epoch}", "gloo", HERE, self._port)


@pytest.fixture
def ends():
    ends = Ends()
    yield ends
    for epoch in range(3):
        ends.sender.cut(ends.wire(epoch).name)
        ends.receiver.cut(ends.wire(epoch).name)


VALUES = {
    "views": (torch.arange(6.0).reshape(2, 3).T, torch.ones(3, 1).expand(3, 4), torch.arange(9)[::2]),
    "dtypes": [torch.ones(3, dtype=kind) for kind in (torch.bfloat16, torch.float16, torch.float64, torch.int8)],
    "complex": torch.randn(4, dtype=torch.complex64).conj(),
    "scalars": {"flag": torch.tensor(True), "count": torch.tensor(3), "empty": torch.empty(0, 5)},
    "plain": {"none": None, "text": "abc", "array": np.arange(4)},
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "large": torch.arange(1 << 20),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_arrives_as_it_was(ends, name):
    announced, tensors = announce(VALUES[name])
    ends.sender.send(ends.wire(), 0, tensors)
    arrived = ends.receiver.receive(ends.wire(), announced, CPU, LIMIT_S)
    assert repr(arrived) == repr(VALUES[name])
    for one, other in zip(leaves(arrived), leaves(VALUES[name]), strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()
    if name == "channels last":
        assert arrived.stride() == VALUES[name].stride()


def test_values_that_are_told_out_of_order_arrive_in_order(ends):
    numbers = [torch.full((3,), float(number)) for number in range(4)]
    for order in (2, 0, 3, 1):
        ends.sender.send(ends.wire(), order, [numbers[order]])
    announced, _ = announce(numbers[0])
    arrived = [ends.receiver.receive(ends.wire(), announced, CPU, LIMIT_S)[0].item() for _ in numbers]
    assert arrived == [0.0, 1.0, 2.0, 3.0]


def test_a_number_without_a_value_does_not_hold_up_the_next(ends):
    announced, tensors = announce(torch.ones(2))
    ends.sender.send(ends.wire(), 0, None)
    ends.sender.send(ends.wire(), 1, tensors)
    assert ends.receiver.receive(ends.wire(), announced, CPU, LIMIT_S).tolist() == [1.0, 1.0]


def test_a_wire_that_failed_is_never_used_again_and_the_next_epoch_works(ends):
    announced, tensors = announce(torch.ones(2))
    ends.sender.send(ends.wire(), 0, tensors)
    ends.receiver.receive(ends.wire(), announced, CPU, LIMIT_S)
    with pytest.raises(Lost, match="nothing came over the wire 1>2/0"):
        ends.receiver.receive(ends.wire(), announced, CPU, 0.1)
    ends.sender.send(ends.wire(), 1, tensors)
    with pytest.raises(Lost, match="has been cut"):
        ends.receiver.receive(ends.wire(), announced, CPU, LIMIT_S)
    ends.sender.send(ends.wire(1), 0, tensors)
    assert ends.receiver.receive(ends.wire(1), announced, CPU, LIMIT_S).tolist() == [1.0, 1.0]


def test_two_wires_from_one_sender_do_not_disturb_each_other(ends):
    other = Exchange(HERE)
    wire = ends.wire()._replace(name="1>3/0")
    announced, first = announce(torch.zeros(3))
    ends.sender.send(ends.wire(), 0, first)
    ends.sender.send(wire, 0, [torch.ones(3)])
    assert other.receive(wire, announced, CPU, LIMIT_S).tolist() == [1.0] * 3
    other.cut(wire.name)
    assert ends.receiver.receive(ends.wire(), announced, CPU, LIMIT_S).tolist() == [0.0] * 3
