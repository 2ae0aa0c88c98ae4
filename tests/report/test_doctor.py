import importlib
import io
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from rich.console import Console
from typer.testing import CliRunner

from labkit.errors import SettingError, Unavailable
from labkit.report import machine, packages
from labkit.report.doctor import Finding, examine, render

doctor = importlib.import_module("labkit.report.doctor")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(findings):
    screen = Console(file=io.StringIO(), width=100, color_system=None)
    render(findings, screen)
    return screen.file.getvalue()


def test_this_machine_has_no_failure_and_every_part_was_looked_at():
    findings = examine()
    assert [finding for finding in findings if not finding.ok] == []
    wanted = {"Python", "packages", "tested set", "widgets", "cpu", "accelerator", "browser", "disk", "ports"}
    assert wanted | {"cache folder", "working folder"} <= {finding.name for finding in findings}


def test_each_fault_is_shown_with_its_remedy_and_words_beside_colours():
    text = shown(
        (Finding("a", "ok", "fine"), Finding("b", "warn", "odd", "Look."), Finding("c", "fail", "bad", "Mend."))
    )
    assert "-> Look." in text
    assert "-> Mend." in text
    assert "FAIL" in text
    assert text.rstrip().endswith("1 of 3 checks failed; do what their lines say and run labkit doctor again.")


def test_warnings_alone_pass():
    finding = Finding("b", "warn", "odd", "Look.")
    assert finding.ok
    assert "All 1 checks passed, 1 with a warning." in shown((finding,))


def test_a_remedy_with_brackets_is_shown_as_it_is():
    assert "pip install 'labkit[lab]'" in shown((Finding("a", "fail", "x", "Run: pip install 'labkit[lab]'"),))


def test_a_fault_without_a_remedy_is_refused():
    with pytest.raises(SettingError):
        Finding("a", "fail", "x")
    with pytest.raises(SettingError):
        Finding("a", "warn", "x", "first\nsecond")


def test_a_check_that_breaks_is_a_failure_and_the_others_still_run(monkeypatch):
    def broken():
        raise ZeroDivisionError("oh")

    def unavailable():
        raise Unavailable("nothing here", "Bring it.")

    monkeypatch.setattr(doctor, "_CHECKS", (("a", broken), ("b", unavailable), ("c", machine.check_ports)))
    first, second, third = examine()
    assert (first.state, first.name) == ("fail", "a")
    assert "ZeroDivisionError: oh" in first.detail
    assert (second.state, second.detail, second.remedy) == ("fail", "nothing here", "Bring it.")
    assert third.name == "ports"


def test_the_command_exits_1_exactly_when_a_check_failed(monkeypatch):
    from labkit.cli import app

    monkeypatch.setattr(doctor, "examine", lambda: (Finding("a", "warn", "odd", "Look."),))
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0
    monkeypatch.setattr(doctor, "examine", lambda: (Finding("a", "fail", "bad", "Mend."),))
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


def test_a_missing_package_and_one_outside_its_range_fail(monkeypatch):
    needs = ["no-such-package-at-all>=1", "numpy<1", "torch>=2", "windows-only; sys_platform == 'nowhere'"]
    monkeypatch.setattr(packages, "distribution", lambda name: SimpleNamespace(requires=needs))
    finding = packages.check_needed()
    assert finding.state == "fail"
    assert "no-such-package-at-all is missing" in finding.detail
    assert "numpy is " in finding.detail
    assert "torch" not in finding.detail
    assert "windows-only" not in finding.detail


def test_the_needs_of_the_labs_are_looked_at_and_those_of_the_tests_are_not():
    needs = [Requirement(text) for text in packages.distribution("labkit").requires]
    lab = {need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": "lab"})}
    assert f"all {len(lab)} " in packages.check_needed().detail
    assert "jupyterlab" in lab
    assert "pytest" not in lab


def test_every_line_of_the_tested_set_is_read():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    tested = packages.pinned_versions(ROOT / "constraints.txt")
    assert len(tested) == len(lines) > 100
    assert tested["huggingface-hub"] == next(line.partition("==")[2] for line in lines if "huggingface_hub" in line)


def test_comments_and_blank_lines_in_the_tested_set_are_skipped(tmp_path):
    (tmp_path / "constraints.txt").write_text("# the set\n\nNumPy==2.0.0  # why\ntorch==2.13.0\n")
    assert packages.pinned_versions(tmp_path / "constraints.txt") == {"numpy": "2.0.0", "torch": "2.13.0"}


def test_another_version_than_the_tested_one_warns(tmp_path, monkeypatch):
    (tmp_path / "constraints.txt").write_text("numpy==0.0.1\nno-such-package-at-all==1\n")
    monkeypatch.setattr(packages, "_REPOSITORY", tmp_path)
    finding = packages.check_tested()
    assert (finding.state, "tested 0.0.1" in finding.detail) == ("warn", True)
    assert "no-such-package" not in finding.detail


def test_a_build_of_the_tested_version_is_the_tested_version(tmp_path, monkeypatch):
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    monkeypatch.setattr(packages, "_REPOSITORY", tmp_path)
    monkeypatch.setattr(packages, "version", lambda name: "2.13.0+cu130")
    assert packages.check_tested().state == "ok"


def test_without_the_tested_set_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "_REPOSITORY", tmp_path)
    finding = packages.check_tested()
    assert (finding.state, "constraints.txt does not come" in finding.detail) == ("warn", True)


def test_widgets_whose_halves_differ_fail(monkeypatch):
    monkeypatch.setattr(packages, "_page_version", lambda name: "0.0.1")
    assert packages.check_widgets().state == "fail"
    assert "0.0.1 in JupyterLab" in packages.check_widgets().detail
    monkeypatch.setattr(packages, "_page_version", lambda name: "")
    assert "no extension @jupyter-widgets/jupyterlab-manager" in packages.check_widgets().detail


def test_a_card_that_pytorch_cannot_use_warns(monkeypatch):
    cpu = machine.attached()[-1]
    monkeypatch.setattr(machine, "attached", lambda: (cpu,))
    monkeypatch.setattr(machine.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    assert machine.check_gpu_build().state == "warn"


def test_a_device_without_free_memory_warns(monkeypatch):
    monkeypatch.setattr(machine, "memory_free_bytes", lambda device_id: 1000)
    assert {finding.state for finding in machine.check_devices()} == {"warn"}


def test_a_senseless_share_of_the_card_fails(monkeypatch):
    monkeypatch.setenv("LABKIT_GPU_FRACTION", "7")
    assert [finding.name for finding in examine() if not finding.ok] == ["devices"]


def test_no_browser_warns_and_a_named_one_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("BROWSER_PATH", "")
    monkeypatch.setattr(machine, "_APPLICATIONS", ())
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert machine.check_browser().state == "warn"
    (tmp_path / "browser").write_text("")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "browser"))
    assert str(tmp_path / "browser") in machine.check_browser().detail


def test_a_cache_folder_that_cannot_be_made_fails_with_the_variable_to_set(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "file" / "cache"))
    cache = machine.check_folders()[0]
    assert (cache.name, cache.state) == ("cache folder", "fail")
    assert "LABKIT_CACHE" in cache.remedy


def test_a_folder_that_cannot_be_written_fails(monkeypatch):
    def full(dir):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine.tempfile, "TemporaryFile", full)
    assert {finding.state for finding in machine.check_folders()} == {"fail"}
    assert "No space left" in machine.check_folders()[1].detail


@pytest.mark.parametrize(("free", "state"), [(2**28, "fail"), (2**30, "warn"), (2**40, "ok")])
def test_the_disk_is_judged_by_its_free_space(monkeypatch, free, state):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert machine.check_disk().state == state


def test_a_taken_port_is_seen_as_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not machine._can_listen(taken.getsockname()[1])
    assert machine._can_listen(0)


def test_ports_that_cannot_be_opened_fail_and_a_taken_8888_warns(monkeypatch):
    monkeypatch.setattr(machine, "_can_listen", lambda port: False)
    assert machine.check_ports()[0].state == "fail"
    monkeypatch.setattr(machine, "_can_listen", lambda port: port == 0)
    assert machine.check_ports()[0].state == "warn"


def test_python_outside_an_environment_warns(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    assert packages.check_python().state == "warn"
    (tmp_path / "conda-meta").mkdir()
    assert packages.check_python().state == "ok"
