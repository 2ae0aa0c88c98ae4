from pathlib import Path

import pytest

from labkit.errors import Unavailable, UnknownName
from labkit.report.notebooks import find_notebook, notebook_names, notebooks_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("90_report_batching", "10_batching_curve", "11_batching_live"):
        (tmp_path / f"{name}.ipynb").write_text("{}")
    return tmp_path


def test_names_come_in_reading_order(folder: Path) -> None:
    assert notebook_names(folder) == ("10_batching_curve", "11_batching_live", "90_report_batching")


@pytest.mark.parametrize("name", ["90_report_batching", "report_batching", "batching", "90_report_batching.ipynb"])
def test_a_report_is_found_by_any_of_its_spellings(folder: Path, name: str) -> None:
    assert find_notebook(name, folder) == folder.resolve() / "90_report_batching.ipynb"


def test_a_path_is_taken_as_it_is(folder: Path) -> None:
    path = folder / "11_batching_live.ipynb"
    assert find_notebook(path, Path("nowhere")) == path.resolve()


def test_an_unknown_name_brings_the_near_match(folder: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean '10_batching_curve'"):
        find_notebook("10_batching_curv", folder)


def test_the_working_directory_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "notebooks").mkdir()
    monkeypatch.chdir(folder)
    assert notebooks_folder() == folder / "notebooks"


def test_a_missing_folder_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import labkit.report.notebooks as module

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    with pytest.raises(Unavailable, match=r"no folder .*notebooks"):
        notebooks_folder()
