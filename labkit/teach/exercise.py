"""One exercise: what is asked, how an answer is checked, hints, and a solution that passes the same check."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

import numpy as np

from labkit.errors import SettingError, require
from labkit.teach.outcome import Note, Outcome, show

__all__ = ["Case", "Exercise", "cases_of", "close"]

Answer = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments for the student's function, what it should return for them, and why, in a few words."""

    arguments: dict[str, Any]
    expected: Any
    why: str = ""


def cases_of(reference: Answer, *rows: tuple[Any, ...]) -> list[Case]:
    """Make a case of each row, which holds the arguments of `reference` in its order, what is expected, and why.

    >>> def twice(x): return 2 * x
    >>> cases_of(twice, (1.5, 3.0, "Add it to itself."))
    [Case(arguments={'x': 1.5}, expected=3.0, why='Add it to itself.')]
    """
    names = tuple(inspect.signature(reference).parameters)
    return [Case(dict(zip(names, row[:-2], strict=True)), *row[-2:]) for row in rows]


def close(got: Any, expected: Any) -> bool:
    """Whether two results agree to a millionth; infinities and shapes must match.

    >>> close((20.0, 1.00000001), (20.0, 1.0)), close(19.0, 20.0), close("20", 20.0)
    (True, False, False)
    """
    try:
        a, b = np.asarray(got, dtype=float), np.asarray(expected, dtype=float)
    except (TypeError, ValueError):
        return False
    numbers = not isinstance(got, str | bool)
    return numbers and a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-6, atol=1e-9))


def _count(cases: list[tuple[Case, Any]]) -> str:
    return f"right in {len(cases)} of {len(cases)} cases"


@dataclass(frozen=True, slots=True)
class Exercise:
    """An exercise of a lab.

    `cases` makes the cases afresh for each check, `agrees(got, expected)` compares, and `score` says in a few words how
    good a passed answer is, from the pairs of case and result. `reference` is the solution.
    """

    id: str
    lab: str
    task: str
    hints: tuple[str, ...]
    reference: Answer
    cases: Callable[[], list[Case]]
    agrees: Callable[[Any, Any], bool] = close
    score: Callable[[list[tuple[Case, Any]]], str] = field(default=_count)

    def __post_init__(self) -> None:
        require(bool(self.hints), f"exercise {self.id} has no hint", "Give at least one.")

    def check(self, answer: Any) -> None:
        """Check `answer`, a function, and show the outcome: not attempted, wrong (with the case), or passed."""
        show(self.grade(answer))

    def hint(self, n: int = 1) -> None:
        """Show hint `n`, from 1 up; each says a little more than the one before."""
        count = len(self.hints)
        if not 1 <= n <= count:
            raise SettingError(f"hint is {n}; exercise {self.id} has hints 1 to {count}", "Ask for one of those.")
        show(Note(f"Hint {n} of {count}.", self.hints[n - 1]))

    def solution(self) -> None:
        """Show the solution's source."""
        show(Note(f"Solution of {self.id}.", code=dedent(inspect.getsource(self.reference)).strip()))

    def continue_with(self, answer: Any) -> Answer:
        """`answer` if it is right, else the reference solution, and say so: later cells run in either case."""
        if self.grade(answer).passed:
            solved: Answer = answer
            return solved
        show(Note(f"{self.id} is not solved yet.", "The cells below go on with the reference solution."))
        return self.reference

    def grade(self, answer: Any) -> Outcome:
        """The outcome of `answer`, without showing it."""
        if answer is None or answer is Ellipsis:
            return self._not_attempted("Write the function, then check it.")
        if not callable(answer):
            return Outcome(self.id, "wrong", f"Give the function itself, not a {type(answer).__name__}.")
        results: list[tuple[Case, Any]] = []
        for case in self.cases():
            outcome, got = self._try(answer, case)
            if outcome is not None:
                return outcome
            results.append((case, got))
        return Outcome(self.id, "passed", "", (("score", self.score(results)),))

    def _try(self, answer: Answer, case: Case) -> tuple[Outcome | None, Any]:
        try:
            got = answer(*case.arguments.values())  # by place, so that the student may name them
        except NotImplementedError:
            return self._not_attempted("The function still raises NotImplementedError."), None
        except Exception as error:
            return self._wrong(case, f"{type(error).__name__}: {error}{_line_of(answer, error)}"), None
        if got is None or got is Ellipsis:
            return self._not_attempted("The function returns nothing: fill it in, or add the `return`."), None
        return (None, got) if self.agrees(got, case.expected) else (self._wrong(case, _words(got)), got)

    def _not_attempted(self, message: str) -> Outcome:
        return Outcome(self.id, "not attempted", message)

    def _wrong(self, case: Case, got: str) -> Outcome:
        given = ", ".join(f"{name} = {_words(value)}" for name, value in case.arguments.items())
        facts = (("input", given), ("expected", _words(case.expected)), ("got", got))
        return Outcome(self.id, "wrong", case.why, facts)


def _line_of(answer: Answer, error: Exception) -> str:
    """The line of the student's own code that raised, or that called what raised."""
    file = getattr(getattr(answer, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" (line {lines[-1]})" if lines else ""


def _words(value: Any) -> str:
    """A value as a student would write it, not longer than a line.

    >>> _words(np.float64(1) / 3), _words((np.int64(2), float("inf"))), _words(np.arange(9.0))
    ('0.333333', '(2, inf)', '[0, 1, 2, 3, 4, 5, …]')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_words, value))})"
    if isinstance(value, list | np.ndarray):
        shown = [_words(item) for item in value[:6]]
        return f"[{', '.join(shown + ['…'] * (len(value) > len(shown)))}]"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
