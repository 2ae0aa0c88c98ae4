from threading import Event

import pytest

from labkit.errors import UnknownName
from labkit.labs import Note, Point, batching_faults, faulty_network
from labkit.labs.batching_faults import FaultSettings, run
from labkit.labs.faulty_network import SCENARIOS
from labkit.labs.tally import Client, tally
from labkit.records import RequestRecord


@pytest.fixture(autouse=True)
def _small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty_network, "WIDTH", 32)
    monkeypatch.setattr(batching_faults, "WIDTH", 32)
    monkeypatch.setattr(faulty_network.FaultyNetwork, "capacity_per_s", lambda self, rows: 400.0)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_drives_both_systems_and_ends_with_what_was_seen(scenario: str) -> None:
    items = list(run(FaultSettings(scenario, rate_per_s=200.0, seconds=1.0), Event()))
    series = {item.series for item in items if isinstance(item, Point)}
    assert {"naive: answered", "labkit: answered"} <= series
    last = items[-1]
    assert isinstance(last, Note)
    assert "naive: " in last.text
    assert "labkit: " in last.text
    # Whatever goes wrong, nobody fails in labkit's batcher for a fault of somebody else's.
    assert "innocent" not in last.text.split("labkit: ")[1]


@pytest.mark.parametrize("scenario", ["mixed shapes"])
def test_the_naive_batcher_fails_the_innocent(scenario: str) -> None:
    last = list(run(FaultSettings(scenario, rate_per_s=400.0, seconds=1.0), Event()))[-1]
    assert isinstance(last, Note)
    assert "innocent failed" in last.text.split("labkit: ")[0]


def test_cancelled_work_that_ran_is_counted_as_computed_for_nobody() -> None:
    ran = RequestRecord(0, 0.0, 0.0, 0.0, 0.1, 0.2, "cancelled", step=3)
    waited = RequestRecord(1, 0.0, 0.0, 0.0, 0.1, 0.2, "cancelled")
    assert tally([Client(False, True), Client(False, True)], [ran, waited]).in_vain == 1


def test_an_unknown_scenario_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'poison'"):
        FaultSettings("poisson")
