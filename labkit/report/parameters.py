"""The parameters of a notebook: which ones it declares, and how a value becomes one of them.

The names, types and defaults are read from the cell tagged `parameters` (`seconds: float = 5.0  # how long`), by
papermill. papermill itself only warns about a name that the notebook does not know, and runs on; here it is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import papermill  # type: ignore[import-untyped]
from nbformat import NotebookNode

from labkit.errors import SettingError, require_known
from labkit.report.record import plain

__all__ = ["Parameter", "assignments", "bind", "declared"]

_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that a notebook declares: `kind` is its annotation, or the type of its default."""

    name: str
    kind: str
    default: str
    help: str = ""

    @property
    def optional(self) -> bool:
        """Whether None is a value of it."""
        return self.kind.startswith("Optional") or self.default == "None"

    @property
    def base(self) -> str:
        """The bare type: `list` of `list[int]`, `int` of `Optional[int]`; empty if it is not known."""
        inner = (
            self.kind.removeprefix("Optional[").removesuffix("]") if self.kind.startswith("Optional[") else self.kind
        )
        return inner.partition("[")[0].strip()


def declared(notebook: NotebookNode) -> dict[str, Parameter]:
    """The parameters that `notebook` declares, by name, in their order."""
    found = papermill.inspect_notebook(notebook)
    return {
        name: Parameter(name, _kind(entry["inferred_type_name"], entry["default"]), entry["default"], entry["help"])
        for name, entry in found.items()
    }


def _kind(annotation: str, default: str) -> str:
    if annotation != "None":
        return annotation
    with suppress(ValueError, SyntaxError):
        value = ast.literal_eval(default)
        return "" if value is None else type(value).__name__
    return ""


def assignments(texts: Iterable[str]) -> dict[str, str]:
    """Split `name=value` texts, as the command line takes them; the last one of a name counts.

    >>> assignments(["slo_ms=80", "note=a=b"])
    {'slo_ms': '80', 'note': 'a=b'}
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise SettingError(f"-p {text!r} is not of the form name=value", "Write, for instance, -p seconds=5.")
        pairs[name.strip()] = value
    return pairs


def bind(parameters: Mapping[str, Any], known: Mapping[str, Parameter]) -> dict[str, Any]:
    """`parameters` as the notebook will get them: each name known, each value of the declared type.

    Text is read as the declared type; numpy scalars become Python numbers. Raises `UnknownName` with the nearest name,
    and `SettingError` for a value that is not of its type.

    >>> bind({"seconds": "2.5"}, {"seconds": Parameter("seconds", "float", "5.0")})
    {'seconds': 2.5}
    """
    for name in parameters:
        require_known("parameter", name, known)
    return {name: _coerced(known[name], plain(value)) for name, value in parameters.items()}


def _coerced(parameter: Parameter, value: Any) -> Any:
    if value is None or (parameter.base != "str" and str(value).lower() in ("none", "null")):
        if parameter.optional:
            return None
    elif parameter.base not in _READERS:
        return _literal(value) if isinstance(value, str) else value
    else:
        with suppress(ValueError, SyntaxError, TypeError, KeyError):
            return _READERS[parameter.base](value)
    raise SettingError(
        f"Parameter {parameter.name} is {value!r}; it must be of type {parameter.kind}",
        f"Its default is {parameter.default}.",
    )


def _int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    return float(value)


def _bool(value: Any) -> bool:
    return value if isinstance(value, bool) else _TRUTHS[value.strip().lower()]


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _list(value: Any) -> list[Any]:
    items = ast.literal_eval(value) if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError
    return list(items)


def _dict(value: Any) -> dict[str, Any]:
    pairs = ast.literal_eval(value) if isinstance(value, str) else value
    if not isinstance(pairs, dict):
        raise ValueError
    return pairs


def _literal(text: str) -> Any:
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text


_READERS: dict[str, Callable[[Any], Any]] = {
    "bool": _bool,
    "dict": _dict,
    "float": _float,
    "int": _int,
    "list": _list,
    "str": _str,
    "tuple": _list,
}
