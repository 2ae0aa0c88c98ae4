import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.devices import attached

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def script(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPTS / "gpu_check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rehearsal_on_the_cpu_prints_one_json_in_which_every_check_is_well(tmp_path):
    file = tmp_path / "out.json"
    done = subprocess.run(
        [SCRIPTS / "gpu_check.sh", "--quick", "--device", "cpu", "--json", file],
        env={**os.environ, "PYTHON": sys.executable, "LABKIT_CACHE": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
    )
    found = json.loads(done.stdout)
    assert [check for check in found["checks"] if not check["ok"]] == []
    assert done.returncode == 0
    assert found == json.loads(file.read_text())
    assert (found["device"]["id"], found["quick"]) == ("cpu", True)
    assert found["versions"]["torch"]
    assert found["ceilings"]["copy_bytes_per_s"] > 0
    assert set(attached()[-1].dtypes) <= set(found["ceilings"]["matmul_flop_per_s"])
    assert {"ceilings", "products", "memory", "lease"} <= {check["name"] for check in found["checks"]}


def test_a_failing_check_is_written_down_and_the_others_still_run(script, monkeypatch, capsys):
    def fail(device):
        raise ValueError("what went wrong")

    monkeypatch.setattr(script, "CHECKS", {"first": fail, "second": lambda device: {"device": device.id}})
    assert script.main(["--device", "cpu"]) == 1
    first, second = json.loads(capsys.readouterr().out)["checks"]
    assert (first["ok"], first["error"]) == (False, "ValueError: what went wrong")
    assert second["values"] == {"device": "cpu"}


def test_only_the_chosen_checks_run(script, capsys):
    assert script.main(["--device", "cpu", "--only", "products"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in found["checks"]] == ["products"]
    assert found["ceilings"] is None


def test_a_check_that_hangs_is_written_down_when_the_time_is_up(tmp_path):
    code = (
        "import sys, threading; sys.path.insert(0, sys.argv[1]); import gpu_check\n"
        "gpu_check.LIMIT_S = 0.2\n"
        "gpu_check.CHECKS.clear()\n"
        "gpu_check.CHECKS.update(quick=lambda device: {}, stuck=lambda device: threading.Event().wait())\n"
        "gpu_check.main(['--device', 'cpu'])"
    )
    done = subprocess.run([sys.executable, "-c", code, SCRIPTS], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    quick, stuck = json.loads(done.stdout)["checks"]
    assert quick["ok"]
    assert stuck == {"name": "stuck", "ok": False, "error": "still running after 0.2 s"}


def test_it_needs_no_jupyter():
    code = "import sys; sys.path.insert(0, sys.argv[1]); import gpu_check; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, SCRIPTS], capture_output=True, text=True, timeout=100)
    loaded = set(done.stdout.split())
    assert "torch" in loaded
    assert not loaded & {"IPython", "ipywidgets", "anywidget", "jupyterlab", "plotly", "typer", "rich", "PIL"}
