"""How a notebook says that it came to its end: it records its result, as its last act.

A notebook can end quietly half-way (`sys.exit(0)`, a failing magic), and what a saved notebook says about its own run
is not to be trusted: after a killed kernel it may call every cell completed. So the runner passes the path of a small
JSON file in `LABKIT_RESULT`, and a run counts only if the notebook has written it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.errors import SettingError

__all__ = ["RESULT_VARIABLE", "plain", "read_result", "record_result"]

RESULT_VARIABLE = "LABKIT_RESULT"


def record_result(*, verdict: str = "", **values: Any) -> None:
    """Record the notebook's result; put it into the last cell.

    `verdict` is one sentence for a hurried reader: the report shows it under its title. `values` are the key numbers,
    with their units in the names. Outside `labkit report` (in JupyterLab, say) it does nothing.

    >>> record_result(verdict="Batching 16 rows meets the goal.", p99_ms=71.5, rate_per_s=310)
    """
    row = json.dumps({"verdict": verdict, **plain(values)}, ensure_ascii=False, allow_nan=True)
    path = os.environ.get(RESULT_VARIABLE)
    if path:
        fresh = Path(f"{path}.part")
        fresh.write_text(row, encoding="utf-8")
        fresh.replace(path)  # the reader sees the whole row or none


def read_result(path: Path) -> dict[str, Any] | None:
    """The row that the notebook recorded, or None if it recorded none."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return row if isinstance(row, dict) else None


def plain(value: Any) -> Any:
    """`value` made of what JSON knows: numpy scalars and arrays become numbers and lists, paths become text.

    Raises `SettingError` for anything else.

    >>> import numpy as np
    >>> plain({"sizes": np.array([1, 2]), "best": np.int64(2), "cap": (1, None)})
    {'sizes': [1, 2], 'best': 2, 'cap': [1, None]}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return _builtin(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch, neither of which this file needs to import
        return plain(value.tolist())
    raise SettingError(f"{value!r} is a {type(value).__name__}, which JSON cannot hold", "Give numbers, text or lists.")


def _builtin(value: Any) -> Any:
    """Strip subclasses such as `numpy.float64`, which is a float whose repr is no Python literal."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None
