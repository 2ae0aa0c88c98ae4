import json
from pathlib import Path

import numpy as np
import pytest

from labkit.errors import SettingError
from labkit.report.record import plain, read_result, record_result


def test_a_recorded_result_is_read_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    monkeypatch.setenv("LABKIT_RESULT", str(path))
    record_result(verdict="好: it holds.", p99_ms=np.float32(1.5), sizes=np.arange(3))
    assert read_result(path) == {"verdict": "好: it holds.", "p99_ms": 1.5, "sizes": [0, 1, 2]}
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written is left


def test_outside_a_report_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABKIT_RESULT", raising=False)
    monkeypatch.chdir(tmp_path)
    record_result(verdict="It holds.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[1]", "{half"])
def test_a_file_that_is_no_row_counts_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    assert read_result(path) is None
    path.write_text(text)
    assert read_result(path) is None


def test_numbers_of_numpy_keep_no_trace_of_it() -> None:
    value = plain({"a": np.float64(0.1), "b": [np.bool_(True)], 3: (np.int8(1),)})
    assert json.dumps(value) == '{"a": 0.1, "b": [true], "3": [1]}'
    assert type(value["a"]) is float


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(SettingError, match="object"):
        plain({"x": object()})
