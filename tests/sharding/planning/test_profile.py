import json
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from labkit.devices import cache_dir
from labkit.errors import SettingError, UnknownName
from labkit.sharding import timing
from labkit.sharding.chain import Chain
from labkit.sharding.footprint import working_bytes
from labkit.sharding.link import Link
from labkit.sharding.partition import partition
from labkit.sharding.profile import profile

# The package exports the function under the module's name, which hides the module.
module = import_module("labkit.sharding.profile")


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    """Whatever else this machine does now, what is measured here is kept."""
    monkeypatch.setattr(module.Busy, "others_share", lambda self: 0.0)


def chain():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(inplace=True), nn.Linear(32, 8), nn.Linear(8, 32))
    model[3].weight = model[0].weight
    return Chain.of(model)


def measured(**options):
    return profile(chain(), torch.randn(2, 8), batch_sizes=(1, 4), repeats=2, **options)


def test_bytes_and_weights_are_those_that_can_be_counted_by_hand():
    found = measured()
    assert found.cut_bytes == ((32, 128, 128, 32, 128), (128, 512, 512, 128, 512))
    assert found.param_bytes == (32 * 4, 0, (32 * 8 + 8) * 4, 32 * 4)
    assert [(tie.weight_bytes, tie.layers) for tie in found.tied] == [(8 * 32 * 4, (0, 3))]
    assert found.work_bytes[1][0] == 128 + 512
    assert found.refusals == ((1, "'1' (ReLU) works in place and would overwrite the value on the edge."),)


def test_every_layer_has_a_time_on_each_device_at_each_batch_size():
    times = np.array(measured().layer_s)
    assert times.shape == (1, 2, 4)
    assert (times > 0).all()


def test_a_big_layer_takes_longer_than_a_small_one():
    big = Chain.of(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4096), nn.Linear(4096, 4096)))
    found = profile(big, torch.randn(64, 8), batch_sizes=(64,), repeats=3)
    assert found.layer_times("cpu", 64)[2] > 2 * found.layer_times("cpu", 64)[0]


def test_a_second_call_reads_what_the_first_one_measured(monkeypatch):
    first = measured()
    monkeypatch.setattr(module, "layer_times", None)  # would raise if anything were measured
    assert measured() == first
    with pytest.raises(TypeError):
        measured(remeasure=True)


def test_another_model_or_type_is_measured_anew(monkeypatch):
    measured()
    monkeypatch.setattr(module, "layer_times", None)
    with pytest.raises(TypeError):
        measured(dtype=torch.bfloat16)
    with pytest.raises(TypeError):
        profile(Chain.of(nn.Sequential(nn.Linear(8, 9))), torch.randn(2, 8), batch_sizes=(1, 4), repeats=2)


def test_what_was_measured_beside_others_serves_once(monkeypatch):
    monkeypatch.setattr(module.Busy, "others_share", lambda self: 0.5)
    assert measured().origin.others_share == 0.5
    assert not list((cache_dir() / "profiles").glob("*.json"))


def test_a_damaged_file_is_measured_anew():
    first = measured()
    (file,) = (cache_dir() / "profiles").glob("*.json")
    file.write_text(file.read_text()[:100])
    assert measured().cut_bytes == first.cut_bytes
    assert json.loads(file.read_text())["names"] == ["0", "1", "2", "3"]


def test_it_says_where_its_numbers_come_from():
    found = measured().origin
    assert found.threads == torch.get_num_threads()
    assert dict(found.versions)["torch"] == torch.__version__
    assert found.measured_at.startswith("20")
    assert 0 <= found.others_share <= 1


def test_half_the_precision_takes_half_the_bytes():
    whole, half = measured(), measured(dtype=torch.bfloat16)
    assert [sum(cuts) for cuts in half.cut_bytes] == [sum(cuts) // 2 for cuts in whole.cut_bytes]
    assert sum(half.param_bytes) == sum(whole.param_bytes) // 2
    assert half.dtype == "bfloat16"


def test_a_problem_for_two_workers_of_which_one_is_slowed_down():
    found = measured()
    problem = found.problem(["cpu", "cpu"], rows=4, slowdown=[1, 3], links=Link(1e-6, 1e9), memory_bytes=[1e6, 1e6])
    assert problem.devices == ("cpu#1", "cpu#2")
    assert problem.layer_s[1] == pytest.approx(3 * problem.layer_s[0])
    assert problem.rows == 4
    assert partition(problem).boundaries[-1] == 4
    assert not problem.allowed[1]
    assert found.problem(["cpu"]).rows == 4


def test_between_two_batch_sizes_it_lies_between_them():
    found = measured()
    assert found.problem(["cpu"], rows=2).cut_bytes.tolist() == [64, 256, 256, 64, 256]
    low, middle, high = (found.layer_times("cpu", rows) for rows in (1, 3, 4))
    assert (np.minimum(low, high) <= middle).all()
    assert (middle <= np.maximum(low, high)).all()


def test_beyond_what_was_measured_it_does_not_guess():
    with pytest.raises(SettingError, match="Profile again with batch_sizes that include 8"):
        measured().problem(["cpu"], rows=8)
    with pytest.raises(UnknownName):
        measured().problem(["cuda:77"])


def test_a_chain_that_does_not_fit_at_once_is_measured_in_parts(monkeypatch):
    monkeypatch.setattr(timing, "memory_free_bytes", lambda device: 4000)
    whole = chain()
    assert [*timing._parts(whole, "cpu")] == [(0, 2), (2, 3), (3, 4)]
    taken = timing.layer_times(whole, {2: torch.randn(2, 8)}, "cpu", None, 1)
    assert len(taken[2]) == 4


def test_working_memory_sees_what_a_layer_makes_and_drops():
    class Wide(nn.Module):
        def forward(self, x):
            y = x.repeat(1, 100)
            return (y + 1).sum(1, keepdim=True)

    x = torch.randn(10, 5)
    out, needed = working_bytes(Wide(), x)
    assert torch.equal(out, Wide()(x))
    assert needed == 200 + 2 * 20_000 + 40


def test_a_view_takes_no_memory_of_its_own():
    x = torch.randn(10, 5)
    assert working_bytes(lambda value: value.T, x)[1] == 200 + 200  # as it is sent, the view is a copy
