from typing import Any

import numpy as np
import pytest

from labkit.errors import SettingError, UnknownName
from labkit.report.parameters import Parameter, assignments, bind, declared

CELL = """# parameters
seconds: float = 5.0  # how long
rows: int = 16
model: str = "minilm"
quick: bool = False
sizes: list[int] = [1, 2, 4]
device: Optional[str] = None  # None: the best one
cap: "Optional[int]" = None
untyped = 3
"""


@pytest.fixture
def known(make_notebook: Any) -> dict[str, Parameter]:
    import nbformat

    return declared(nbformat.read(make_notebook(CELL), as_version=4))


def test_all_parameters_are_found_with_type_default_and_help(known: dict[str, Parameter]) -> None:
    assert list(known) == ["seconds", "rows", "model", "quick", "sizes", "device", "cap", "untyped"]
    assert known["seconds"] == Parameter("seconds", "float", "5.0", "how long")
    assert known["untyped"].kind == "int"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("seconds", "2", 2.0),
        ("seconds", "1e-3", 0.001),
        ("rows", "32", 32),
        ("model", "12", "12"),
        ("quick", "Yes", True),
        ("quick", "0", False),
        ("sizes", "[8, 16]", [8, 16]),
        ("device", "cpu", "cpu"),
        ("cap", "none", None),
        ("cap", "4", 4),
        ("untyped", "7", 7),
    ],
)
def test_text_is_read_as_the_declared_type(known: dict[str, Parameter], name: str, text: str, value: Any) -> None:
    bound = bind({name: text}, known)[name]
    assert bound == value
    assert type(bound) is type(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", "many"), ("rows", "1.5"), ("rows", True), ("seconds", "soon"), ("quick", "maybe"), ("sizes", "3")],
)
def test_a_value_of_another_type_is_refused_with_the_type(known: dict[str, Parameter], name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"Parameter {name} is .* must be of type {known[name].base}"):
        bind({name: value}, known)


def test_unknown_parameters_accepted_by_papermill_are_refused_with_the_near_match(known: dict[str, Parameter]) -> None:
    with pytest.raises(UnknownName, match=r"no parameter 'secnds'\. Did you mean 'seconds'"):
        bind({"secnds": 1}, known)


def test_numpy_scalars_become_python_numbers(known: dict[str, Parameter]) -> None:
    bound = bind({"rows": np.int64(8), "seconds": np.float32(0.5), "sizes": np.array([1, 2])}, known)
    assert bound == {"rows": 8, "seconds": 0.5, "sizes": [1, 2]}
    assert [type(bound[name]) for name in bound] == [int, float, list]


def test_none_is_refused_where_it_is_not_a_value(known: dict[str, Parameter]) -> None:
    with pytest.raises(SettingError, match="rows is None"):
        bind({"rows": None}, known)


@pytest.mark.parametrize("text", ["seconds", "=3", "two words=3"])
def test_text_that_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="not of the form name=value"):
        assignments([text])
