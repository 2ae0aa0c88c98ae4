import pytest
import torch

from labkit.engine import Engine
from labkit.errors import EngineClosed
from labkit.labs.naive import NaiveBatcher


def test_it_is_an_engine_that_answers_rightly_while_nothing_goes_wrong() -> None:
    engine = NaiveBatcher(lambda rows: rows * 2)
    assert isinstance(engine, Engine)
    futures = [engine.submit(torch.full((3,), float(n))) for n in range(20)]
    assert [future.result(10)[0].item() for future in futures] == [2.0 * n for n in range(20)]
    engine.close()
    assert len(engine.records.requests()) == 20
    assert sum(step.rows for step in engine.records.steps()) == 20


def test_one_bad_row_fails_its_whole_batch_which_is_its_fault_by_design() -> None:
    engine = NaiveBatcher(lambda rows: rows, wait_ms=200.0)
    futures = [engine.submit(torch.zeros(2)), engine.submit(torch.zeros(3))]
    for future in futures:
        with pytest.raises(RuntimeError):
            future.result(10)
    engine.close()


def test_a_closed_one_refuses() -> None:
    engine = NaiveBatcher(lambda rows: rows)
    engine.close()
    with pytest.raises(EngineClosed):
        engine.submit(torch.zeros(2))
