import importlib
import json
from dataclasses import asdict, replace
from datetime import datetime

import pytest
import torch

from labkit.devices import Ceilings, attached, ceilings, versions
from labkit.errors import UnknownName

module = importlib.import_module("labkit.devices.ceilings")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    return tmp_path / "ceilings"


@pytest.fixture
def counted(monkeypatch):
    """Measure nothing; hand out numbered results, so that a test sees which came from where."""
    made = []
    real = Ceilings("cpu", "x", 1.0, {"float32": 1.0}, 1, 0.0, "2026-01-01T00:00:00+00:00", dict(versions()))

    def measure(device):
        made.append(replace(real, copy_bytes_per_s=float(len(made) + 1)))
        return made[-1]

    monkeypatch.setattr(module, "_measured_here", set())

    monkeypatch.setattr(module, "_measure", measure)
    return made


def test_ceilings_are_measured_for_every_dtype_of_the_device(monkeypatch):
    monkeypatch.setattr(module, "_BUDGET_S", 0.02)
    found = ceilings("cpu")
    assert set(attached()[-1].dtypes) <= set(found.matmul_flop_per_s) <= {"float32", "bfloat16", "float16"}
    assert all(rate > 1e6 for rate in found.matmul_flop_per_s.values())
    assert found.copy_bytes_per_s > 1e6
    assert found.threads == torch.get_num_threads()
    assert datetime.fromisoformat(found.measured_at).utcoffset() is not None
    assert found.versions == dict(versions())


def test_a_rate_is_operations_over_the_seconds_of_one_call(monkeypatch):
    monkeypatch.setattr(module, "_best_matmul_s", lambda device, dtype, size, deadline: 1e-9 * size**3)
    assert module._matmul_flop_per_s("cpu", "float32") == pytest.approx(2e9)
    monkeypatch.setattr(module, "_best_s", lambda work, device, deadline: 0.5)
    assert module._copy_bytes_per_s("cpu") == pytest.approx(2 * 2**26 / 0.5)


def test_a_dtype_that_cannot_be_multiplied_is_left_out(monkeypatch):
    def refuse(device, dtype, size, deadline):
        if dtype is torch.float16:
            raise RuntimeError("not implemented for 'Half'")
        return 1.0

    monkeypatch.setattr(module, "_best_matmul_s", refuse)
    monkeypatch.setattr(module, "_copy_bytes_per_s", lambda device: 1.0)
    assert set(ceilings("cpu").matmul_flop_per_s) == {"float32", "bfloat16"}


def test_the_best_of_the_samples_counts(monkeypatch):
    samples = iter([9.0, 3.0, 2.0, 1.0, 2.0])
    clock = iter(range(100))
    monkeypatch.setattr(module, "_sample_s", lambda work, calls, device: next(samples))
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    assert module._best_s(lambda: None, "cpu", 3) == 1.0


def test_measured_ceilings_are_kept_until_asked_anew(counted):
    assert ceilings("cpu") == ceilings("cpu")
    assert len(counted) == 1
    assert ceilings("cpu", remeasure=True).copy_bytes_per_s == 2.0
    assert ceilings("cpu").copy_bytes_per_s == 2.0


def test_ceilings_of_a_busy_cpu_are_measured_again_by_the_next_process_and_the_better_ones_stay(counted, monkeypatch):
    ceilings("cpu")
    busy = replace(counted[0], others_share=0.9, matmul_flop_per_s={"float32": 5.0, "float16": 2.0})
    quiet = replace(counted[0], others_share=0.0, matmul_flop_per_s={"float32": 3.0, "bfloat16": 7.0})
    monkeypatch.setattr(module, "_measure", lambda device: busy)
    assert ceilings("cpu", remeasure=True).disturbed
    assert ceilings("cpu") == busy  # the same process does not try again
    monkeypatch.setattr(module, "_measured_here", set())
    monkeypatch.setattr(module, "_measure", lambda device: quiet)
    found = ceilings("cpu")
    assert found.matmul_flop_per_s == {"float32": 5.0, "float16": 2.0, "bfloat16": 7.0}
    assert not found.disturbed


def test_another_number_of_threads_has_its_own_ceilings(counted, monkeypatch):
    ceilings("cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 777)
    assert ceilings("cpu").copy_bytes_per_s == 2.0


def test_another_pytorch_has_its_own_ceilings(counted, monkeypatch):
    ceilings("cpu")
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert ceilings("cpu").copy_bytes_per_s == 2.0


def test_what_is_kept_is_json_with_date_and_versions(counted, cache):
    fresh = ceilings("cpu")
    [file] = cache.iterdir()
    kept = json.loads(file.read_text())
    assert kept == asdict(fresh)
    assert kept["versions"]["torch"] == str(torch.__version__)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"device_id": "cpu"}'])
def test_a_damaged_file_is_measured_again(counted, cache, text):
    ceilings("cpu")
    [file] = cache.iterdir()
    file.write_text(text)
    assert ceilings("cpu").copy_bytes_per_s == 2.0
    assert ceilings("cpu").copy_bytes_per_s == 2.0


def test_without_a_cache_folder_they_are_still_measured(counted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "file"))
    assert [ceilings("cpu").copy_bytes_per_s for _ in range(2)] == [1.0, 2.0]


def test_a_device_that_is_not_attached_has_no_ceilings():
    with pytest.raises(UnknownName):
        ceilings("cuda:99")
