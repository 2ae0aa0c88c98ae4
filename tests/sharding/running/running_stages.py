"""Stages for the tests, in a module that the worker processes can import."""

import os
import signal
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


def until(holds, limit_s: float) -> bool:
    """Ask again and again until it holds, for `limit_s` at most."""
    end_s = time.perf_counter() + limit_s
    while not holds():
        if time.perf_counter() > end_s:
            return False
        time.sleep(0.002)
    return True


def same(value):
    return value


def plus_one(value):
    return value + 1


def times_two(value):
    return value * 2


class Scale(nn.Module):
    """Multiplies by a weight of its own."""

    def __init__(self, factor: float, size: int = 1) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((size,), float(factor)))

    def forward(self, value):
        return value * self.factor


class Work(nn.Module):
    """Takes a while, in proportion to `rounds`: matrix products on a matrix of its own."""

    def __init__(self, rounds: int, size: int = 96) -> None:
        super().__init__()
        self.rounds = rounds
        self.register_buffer("matrix", torch.eye(size))

    def forward(self, value):
        product = self.matrix
        for _ in range(self.rounds):
            product = product @ self.matrix
        return value * product[0, 0]


class Bad(Exception):
    """Raised by stages on purpose."""


def raise_on_negative(value):
    if (value < 0).any():
        raise Bad("a negative row")
    return value


def out_of_memory_on_negative(value):
    if (value < 0).any():
        raise torch.OutOfMemoryError("tried to allocate too much")
    return value


def abort_on_negative(value):
    if (value < 0).any():
        os.abort()
    return value


def hang_on_negative(value):
    if (value < 0).any():
        os.kill(os.getpid(), signal.SIGSTOP)
    return value


def exit_on_negative(value):
    if (value < 0).any():
        raise SystemExit("a stage that wants to leave")
    return value


class SlowFirstCall:
    """Its first call in each worker takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.called = seconds, False

    def __call__(self, value):
        until_s = time.perf_counter() + (0.0 if self.called else self.seconds)
        self.called = True
        while time.perf_counter() < until_s:
            pass
        return value


class Unloadable:
    """Cannot be unpickled."""

    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise Bad("this stage cannot be loaded")


def non_contiguous(value):
    """Three views that are not contiguous: transposed, expanded, a split."""
    rows = value.shape[0]
    matrix = value.reshape(rows, 2, -1)
    return matrix.transpose(1, 2), value[:, :1].expand(rows, 4), matrix.split(1, dim=1)[1]


def sum_views(value):
    swapped, expanded, part = value
    return swapped.sum((1, 2)) + expanded.sum(1) + part.sum((1, 2))


def many_outputs(value):
    return {"double": value * 2, "nothing": None, "pair": (value + 1, [value, 3, "text"]), "flag": True}


def one_input(value):
    assert value["nothing"] is None
    assert value["flag"] is True
    assert value["pair"][1][1:] == [3, "text"]
    return value["double"] + value["pair"][0] + value["pair"][1][0]


@dataclass
class Boxed:
    rows: torch.Tensor
    label: str


def boxed(value):
    return Boxed(value, "box")


def unboxed(value):
    assert value.label == "box"
    return value.rows


def to_numpy(value):
    return {"array": value.numpy() * np.float32(2.0)}


def from_numpy(value):
    return torch.from_numpy(value["array"])


def bfloat16_out(value):
    return value.to(torch.bfloat16)


def counts_rows(value):
    return value.shape[0]


def unpicklable(value):
    return lambda: value


def write_to_input(value):
    value.mul_(2)
    return value + 1


def repeat_rows_size(value):
    """Returns far more than it was given."""
    return value.repeat(1, 5000)


def process_id(value):
    return value * 0 + os.getpid()


def threads_of_torch(value):
    return value * 0 + torch.get_num_threads()


def join_lin(pair):
    """Joins the outputs of two shards: y = lin1(x), z = lin2(y), y + z."""
    first, second = pair
    return torch.add(first, second)


class Keep(nn.Module):
    """Runs a layer on the newest of the values and carries all of them along."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, value):
        values = value if isinstance(value, tuple) else (value,)
        return (*values[-1:], self.layer(values[-1]))


class Attend(nn.Module):
    """One head of causal attention with a cache: a step sees what came before, and itself."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, hidden, cache):
        keys, values = self.key(hidden), self.value(hidden)
        if cache is not None:
            keys, values = torch.cat([cache[0], keys], 1), torch.cat([cache[1], values], 1)
        length, seen = hidden.shape[1], keys.shape[1]
        mask = torch.ones(length, seen, dtype=torch.bool).tril(seen - length)
        mixed = nn.functional.scaled_dot_product_attention(self.query(hidden), keys, values, attn_mask=mask)
        return hidden + mixed, (keys, values)


class Counter:
    """A state that must see each step exactly once: returns the sum of all values so far."""

    def __call__(self, value, state):
        total = value if state is None else state + value
        return total, total


def poison(value):
    """Kills its worker when a row is -1, raises when a row is -2."""
    if torch.isclose(value, torch.tensor(-1.0)).any():
        os.abort()
    if torch.isclose(value, torch.tensor(-2.0)).any():
        raise Bad("poison")
    return value
