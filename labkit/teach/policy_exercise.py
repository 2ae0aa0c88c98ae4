"""An exercise whose answer is a batching policy, graded by the highest rate that it holds in the queue simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.batching import Decision, FixedSize, Greedy, Policy, Run, View, WaitUntil
from labkit.errors import MeasureError
from labkit.measure import LinearCurve, max_rate, simulate_policy
from labkit.teach.exercise import Exercise
from labkit.teach.outcome import Outcome
from labkit.workloads import Poisson

__all__ = ["PolicyExercise", "held_per_s"]

_CURVE = LinearCurve(20.0, 1.0)
_SLO_MS = 100.0
_LOW, _HIGH = 5.0, 620.0
_REQUESTS = 3_000


@dataclass(frozen=True, slots=True)
class _Asked:
    """The student's function in a policy's place; anything but a decision is an error in words."""

    answer: Any

    def decide(self, view: View) -> Decision:
        decision: Any = self.answer(view)
        if decision is None or decision is Ellipsis:
            raise NotImplementedError
        if not isinstance(decision, (Run, WaitUntil)):
            raise TypeError(f"decide returned a {type(decision).__name__}; it must return Run(rows) or WaitUntil(at_s)")
        return decision


def held_per_s(policy: Policy) -> float:
    """The highest rate per second with p99 <= 100 ms, modelled: S(b) = 20 ms + 1 ms b, cap 32, Poisson arrivals."""

    def measured(rate_per_s: float) -> Any:
        return simulate_policy(policy, _CURVE, Poisson(rate_per_s).times(_REQUESTS / rate_per_s, seed=1), cap=32)

    return max_rate(measured, _SLO_MS, _LOW, _HIGH, confirm=0).rate_per_s


class PolicyExercise(Exercise):
    """Checks a `decide(view)` by letting it serve a whole crowd; passed if it does better than no batching."""

    __slots__ = ()

    def grade(self, answer: Any) -> Outcome:
        """The outcome of a `decide` function, without showing it."""
        if not callable(answer):
            return Exercise.grade(self, answer)
        try:
            held = held_per_s(_Asked(answer))
        except NotImplementedError:
            return Outcome(self.id, "not attempted", "The function decides nothing yet.")
        except MeasureError as error:
            return Outcome(self.id, "wrong", str(error))
        except Exception as error:
            return Outcome(self.id, "wrong", f"{type(error).__name__}: {error}")
        greedy, alone = held_per_s(Greedy()), held_per_s(FixedSize(1))
        score = (
            f"holds {held:.0f} requests/s with p99 <= 100 ms (modelled); greedy {greedy:.0f}, no batching {alone:.0f}"
        )
        if held <= alone:
            return Outcome(self.id, "wrong", "No better than no batching at all.", (("score", score),))
        return Outcome(self.id, "passed", "", (("score", score),))
