"""The exercises, one file per lab; a file begins with `lab_` because a module's name cannot begin with a number."""

from labkit.teach.exercise import Exercise
from labkit.teach.exercises import (
    lab_00_start_here,
    lab_10_batching_curve,
    lab_11_batching_live,
    lab_12_batching_faults,
    lab_13_batching_memory_and_overlap,
    lab_20_sharding_partition,
    lab_21_sharding_live,
    lab_22_sharding_vs_batching,
)

__all__ = ["LABS"]

_MODULES = (
    lab_00_start_here,
    lab_10_batching_curve,
    lab_11_batching_live,
    lab_12_batching_faults,
    lab_13_batching_memory_and_overlap,
    lab_20_sharding_partition,
    lab_21_sharding_live,
    lab_22_sharding_vs_batching,
)

LABS: dict[str, tuple[Exercise, ...]] = {module.LAB: module.EXERCISES for module in _MODULES}
