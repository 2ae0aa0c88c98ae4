"""The exercises, one file per lab; a file begins with `lab_` because a module's name cannot begin with a number."""

from labkit.teach.exercise import Exercise
from labkit.teach.exercises import lab_00_start_here, lab_10_batching_curve, lab_11_batching_live

__all__ = ["LABS"]

LABS: dict[str, tuple[Exercise, ...]] = {
    module.LAB: module.EXERCISES for module in (lab_00_start_here, lab_10_batching_curve, lab_11_batching_live)
}
