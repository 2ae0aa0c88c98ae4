from pathlib import Path

import pytest

from labkit.devices import cache_dir
from labkit.errors import Unavailable


def test_the_cache_is_where_labkit_cache_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "deep" / "down"))
    assert cache_dir() == tmp_path / "deep" / "down"
    assert cache_dir().is_dir()


def test_a_home_sign_in_labkit_cache_means_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LABKIT_CACHE", "~/mine")
    assert cache_dir() == tmp_path / "mine"


def test_a_relative_cache_folder_stays_when_the_working_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABKIT_CACHE", "here")
    assert cache_dir() == tmp_path / "here"


@pytest.mark.parametrize(
    ("platform", "place"),
    [("linux", ".cache/labkit"), ("darwin", "Library/Caches/labkit"), ("win32", "AppData/Local/labkit")],
)
def test_without_it_the_cache_is_the_platforms_own(tmp_path, monkeypatch, platform, place):
    for name in ("LABKIT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr("sys.platform", platform)
    assert cache_dir() == tmp_path / place


def test_a_cache_that_cannot_be_made_names_the_variable_to_set(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(Unavailable, match="Set LABKIT_CACHE"):
        cache_dir()
