"""Exercises that check themselves, and student copies of the notebooks that hold them.

from labkit.teach import exercise
exercise("10b").hint()
exercise("10b").check(best_batch)
best_batch = exercise("10b").continue_with(best_batch)    # so that later cells run in any case
"""

from labkit.teach.build import build_student
from labkit.teach.exercise import Case, Exercise
from labkit.teach.outcome import Outcome
from labkit.teach.registry import exercise, exercises

__all__ = ["Case", "Exercise", "Outcome", "build_student", "exercise", "exercises"]
