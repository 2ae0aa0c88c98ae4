from threading import Event

import pytest
import torch

from labkit.errors import MeasureError, UnknownName
from labkit.labs.pipeline_drive import alone_ms, drive, there_and_back
from labkit.labs.pipeline_load import Load, PipelineLoad
from labkit.labs.specimen import Specimen


def test_a_rate_is_what_the_records_say(layered: Specimen) -> None:
    cut = layered.cut(2, 2)
    with layered.pipeline(cut, balancing=None) as pipeline:
        rate = drive(layered, pipeline, cut, 0.2, Event())
        rows = pipeline.records.requests()
        assert alone_ms(layered, pipeline, 2) > 0
    whole_s = rows[-1].finished_s - rows[1].finished_s
    assert rate == pytest.approx(2 * (len(rows) - 2) / whole_s, rel=0.5)


def test_systems_are_measured_there_and_back_and_a_stop_is_no_result() -> None:
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    assert there_and_back(["a", "b", "c"], measure, Event()) == {"a": [1, 6], "b": [2, 5], "c": [3, 4]}
    stop = Event()
    stop.set()
    with pytest.raises(MeasureError, match="half-way"):
        there_and_back(["a"], measure, stop)


@pytest.mark.parametrize("kind", ["closed loop", "open loop"])
def test_a_load_sends_until_it_is_stopped_and_follows_its_dial(layered: Specimen, kind: str) -> None:
    with layered.pipeline(layered.cut(2, 2)) as pipeline:
        before = pipeline.snapshot().ok
        load = PipelineLoad(pipeline, layered.rows, Load(kind, rows=2, in_flight=2, rate_per_s=400.0))
        with load:
            while pipeline.snapshot().ok < before + 5:
                load.check()
            load.follow(Load(kind, rows=6, in_flight=1, rate_per_s=100.0))
            while not any(row.rows == 6 for row in pipeline.records.requests()):
                load.check()


def test_a_closed_engine_ends_the_load_with_its_reason(layered: Specimen) -> None:
    pipeline = layered.pipeline(layered.cut(2, 2))
    with PipelineLoad(pipeline, layered.rows, Load(rows=2)) as load:
        pipeline.close(drain=False)
        with pytest.raises(Exception, match="closed"):  # noqa: PT012
            while True:
                load.check()


def test_an_unknown_load_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'open loop'"):
        Load("open loops")


def test_rows_are_those_of_the_subject(layered: Specimen) -> None:
    assert layered.rows(3).shape == (3, 16)
    assert layered.rows(3).device == torch.device("cpu")
