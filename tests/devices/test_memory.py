import importlib
from types import SimpleNamespace

import psutil
import pytest
import torch

from labkit.devices import memory_free_bytes
from labkit.errors import SettingError

host = importlib.import_module("labkit.devices.host")
memory = importlib.import_module("labkit.devices.memory")


def test_the_cpus_memory_is_the_machines_or_less():
    assert 0 < memory_free_bytes("cpu") <= memory.total_bytes("cpu") <= psutil.virtual_memory().total


def test_free_memory_outside_a_container_agrees_with_psutil(monkeypatch):
    monkeypatch.setattr(host, "_LIMITS", ())
    assert memory_free_bytes("cpu") == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_containers_limit_counts_where_it_is_lower(tmp_path, monkeypatch):
    (tmp_path / "max").write_text("1000000\n")
    (tmp_path / "current").write_text("400000\n")
    monkeypatch.setattr(host, "_LIMITS", ((str(tmp_path / "max"), str(tmp_path / "current")),))
    assert host.memory_bytes() == (600_000, 1_000_000)


def test_a_container_without_a_limit_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "max").write_text("max\n")
    monkeypatch.setattr(host, "_LIMITS", ((str(tmp_path / "max"), str(tmp_path / "none")),))
    assert host.memory_bytes()[1] == psutil.virtual_memory().total


def test_a_machine_without_proc_is_asked_through_psutil(monkeypatch):
    assert host._portable_memory()[1] == psutil.virtual_memory().total
    monkeypatch.setattr(host.importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    assert host._portable_memory()[1] == pytest.approx(psutil.virtual_memory().total, rel=0.05)


@pytest.mark.parametrize("text", ["0", "1.5", "-1", "half", "nan"])
def test_a_senseless_gpu_fraction_is_refused(monkeypatch, text):
    monkeypatch.setenv("LABKIT_GPU_FRACTION", text)
    with pytest.raises(SettingError, match="LABKIT_GPU_FRACTION"):
        memory.gpu_fraction()


def test_a_backend_that_torch_accelerator_cannot_ask_is_asked_itself(monkeypatch):
    apple = SimpleNamespace(
        recommended_max_memory=lambda: 100, driver_allocated_memory=lambda: 30, current_allocated_memory=lambda: 20
    )
    monkeypatch.setattr(torch, "get_device_module", lambda kind: apple)
    monkeypatch.delenv("LABKIT_GPU_FRACTION", raising=False)
    # No accelerator of that kind is attached here, so torch.accelerator raises, as it does for one it cannot ask.
    assert memory.total_bytes("mps:0") == 100
    assert memory_free_bytes("mps:0") == 80


def test_the_work_of_other_processes_is_seen_and_ones_own_is_not(monkeypatch):
    clock, used, own = iter([10.0, 12.0]), iter([100.0, 104.0]), iter([50.0, 53.0])
    monkeypatch.setattr(host.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(host.time, "process_time", lambda: next(own))
    monkeypatch.setattr(host, "_busy_s", lambda: next(used))
    monkeypatch.setattr(host.os, "cpu_count", lambda: 2)
    # 2 s on 2 cores; all processes used 4 s, of which 3 s were this one's.
    assert host.Busy.now().others_share() == pytest.approx(0.25)


def test_the_machines_busy_seconds_are_those_that_psutil_counts():
    times = psutil.cpu_times()
    assert host._busy_s() == pytest.approx(
        times.user + times.nice + times.system + times.irq + times.softirq + times.steal, rel=0.05, abs=2
    )
