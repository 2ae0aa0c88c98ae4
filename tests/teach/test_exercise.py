from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from labkit.errors import SettingError
from labkit.teach import Case, Exercise
from labkit.teach.exercise import close


def double(x: float) -> float:
    return 2 * x


@pytest.fixture
def doubling() -> Exercise:
    return Exercise(
        id="99a",
        lab="99_test",
        task="Write double(x).",
        hints=("Add it to itself.", "Multiply by two."),
        reference=double,
        cases=lambda: [Case({"x": 1.5}, 3.0), Case({"x": -2.0}, -4.0, "The sign stays.")],
    )


def _raises(x: float) -> float:
    raise NotImplementedError


def _nothing(x: float) -> None:
    pass


@pytest.mark.parametrize("answer", [None, ..., _raises, _nothing, lambda x: ...])
def test_a_stub_is_not_attempted(doubling: Exercise, answer: Any) -> None:
    outcome = doubling.grade(answer)
    assert outcome.state == "not attempted"
    assert outcome.message


def test_a_wrong_answer_shows_input_expected_got_and_why(doubling: Exercise) -> None:
    outcome = doubling.grade(lambda x: 2 * abs(x))
    assert outcome.state == "wrong"
    assert outcome.facts == (("input", "x = -2"), ("expected", "-4"), ("got", "4"))
    assert outcome.message == "The sign stays."


def test_an_answer_that_raises_shows_which_input_raised_what_and_where(doubling: Exercise) -> None:
    def answer(x: float) -> float:
        if x < 0:
            return 1 / 0
        return 2 * x

    facts = dict(doubling.grade(answer).facts)
    assert facts["input"] == "x = -2"
    line = answer.__code__.co_firstlineno + 2
    assert facts["got"] == f"ZeroDivisionError: division by zero (line {line})"


def test_a_right_answer_passes_with_a_score(doubling: Exercise) -> None:
    outcome = doubling.grade(lambda anything: anything + anything)
    assert outcome.passed
    assert outcome.facts == (("score", "right in 2 of 2 cases"),)


def test_a_value_in_place_of_the_function_is_told_so(doubling: Exercise) -> None:
    assert "Give the function itself, not a float" in doubling.grade(3.0).message


def test_in_a_terminal_check_prints_plain_text(doubling: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    doubling.check(lambda x: x)
    assert capsys.readouterr().out == "✗ 99a: wrong.\n    input:     x = 1.5\n    expected:  3\n    got:       1.5\n"


def test_in_a_notebook_the_outcome_is_announced_and_escaped(doubling: Exercise) -> None:
    html = doubling.grade(lambda x: "<b>")._repr_html_()
    assert 'role="status"' in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_hints_come_one_by_one(doubling: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    doubling.hint()
    doubling.hint(2)
    assert capsys.readouterr().out == "Hint 1 of 2. Add it to itself.\nHint 2 of 2. Multiply by two.\n"


@pytest.mark.parametrize("n", [0, 3])
def test_a_hint_that_does_not_exist_is_refused(doubling: Exercise, n: int) -> None:
    with pytest.raises(SettingError, match=f"hint is {n}; exercise 99a has hints 1 to 2"):
        doubling.hint(n)


def test_the_solution_is_shown_as_source(doubling: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    doubling.solution()
    assert "return 2 * x" in capsys.readouterr().out


def test_later_cells_go_on_with_a_right_answer(doubling: Exercise, capsys: pytest.CaptureFixture[str]) -> None:
    def right(x: float) -> float:
        return x + x

    assert doubling.continue_with(right) is right
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("answer", [_raises, None, lambda x: 0.0])
def test_later_cells_go_on_with_the_reference_otherwise_and_say_so(
    doubling: Exercise, answer: Callable[..., Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doubling.continue_with(answer) is double
    assert "99a is not solved yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("got", "expected", "agrees"),
    [
        (1.0 + 1e-8, 1.0, True),
        (1.001, 1.0, False),
        (np.array([1, 2]), (1, 2), True),
        ((1, 2, 3), (1, 2), False),
        (float("inf"), float("inf"), True),
        (1e300, float("inf"), False),
        (float("nan"), 1.0, False),
        ("1.0", 1.0, False),
        (True, 1.0, False),
        ({"a": 1}, 1.0, False),
        (0.0, 0.0, True),
    ],
)
def test_results_agree_to_a_millionth(got: Any, expected: Any, agrees: bool) -> None:
    assert close(got, expected) is agrees
