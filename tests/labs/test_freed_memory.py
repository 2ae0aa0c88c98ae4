"""The measuring process on the real model, for moments; and what is said when it fails."""

import platform
from threading import Event

import pytest

from labkit.errors import MeasureError
from labkit.labs.freed_memory import CASES, measure


def test_each_case_is_measured_and_kept_memory_ends_the_faults_of_a_batch() -> None:
    runs = list(measure("efficientnet-lite0", (8,), 0.1, Event()))
    assert [(one.case, one.rows) for one in runs] == [(case, 8) for case in CASES]
    assert all(one.batch_ms > 0 for one in runs)
    if platform.libc_ver()[0] == "glibc":
        assert runs[2].faults < runs[0].faults / 4


def test_a_stopped_measurement_ends_its_process() -> None:
    stop = Event()
    stop.set()
    assert len(list(measure("efficientnet-lite0", (1,), 0.1, stop))) == 1


def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(MeasureError, match="no-such-model"):
        list(measure("no-such-model", (1,), 0.1, Event()))
