import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import SettingError
from labkit.sharding.link import Link
from labkit.sharding.price import price
from labkit.sharding.problem import Problem

SECONDS = st.integers(0, 9)


def simulate(servers, microbatches):
    """End of a run: each server (seconds, how many of it) takes the microbatches in order, one at a time each."""
    free = [[0.0] * count for _, count in servers]
    end = 0.0
    for number in range(microbatches):
        now = 0.0
        for (seconds, count), ready in zip(servers, free, strict=True):
            turn = number % count
            now = ready[turn] = max(now, ready[turn]) + seconds
        end = max(end, now)
    return end


@st.composite
def plans(draw, replicas=1):
    stages = draw(st.integers(1, 5))
    counts = [draw(st.integers(1, replicas)) for _ in range(stages)]
    times = [draw(SECONDS) for _ in range(stages)]
    cuts = [draw(SECONDS) for _ in range(stages + 1)]
    problem = Problem([times] * sum(counts), cut_bytes=cuts, links=Link(1, 1))
    return price(problem, range(stages + 1), replicas=counts)


def servers(plan):
    stages = list(zip(plan.stage_s, plan.replicas, strict=True))
    links = [(seconds, 1) for seconds in plan.link_s]
    return [server for pair in zip(stages, [*links, (0.0, 1)], strict=True) for server in pair][: 2 * len(stages) - 1]


@settings(deadline=None)
@given(plan=plans(), microbatches=st.integers(1, 12))
def test_the_makespan_is_that_of_an_event_simulation(plan, microbatches):
    assert plan.predict(microbatches, microbatches).makespan_s == simulate(servers(plan), microbatches)


@settings(deadline=None)
@given(plan=plans(replicas=3), microbatches=st.integers(1, 40))
def test_with_replicas_the_makespan_is_never_promised_too_short(plan, microbatches):
    assert simulate(servers(plan), microbatches) <= plan.predict(microbatches, microbatches).makespan_s + 1e-9


def test_equal_stages_reach_the_known_efficiency():
    plan = price(Problem([[1.0] * 4] * 4), range(5))
    found = plan.predict(64, 16)
    assert found.busy == pytest.approx([16 / 19] * 4)
    assert found.bubble == pytest.approx(3 / 19)
    assert found.items_per_s == pytest.approx(64 / 19)


def test_one_microbatch_gains_nothing_from_four_stages():
    assert price(Problem([[1.0] * 4] * 4, links=Link(0.1)), range(5)).predict(1, 1).makespan_s == pytest.approx(4.3)


def test_a_plan_names_its_bottleneck_and_its_devices():
    plan = price(Problem([[4.0, 3.0]] * 3), [0, 1, 2], devices=[2, 0, 1], replicas=[2, 1])
    assert plan.bottleneck == "stage 1"
    assert (plan.devices_of(0), plan.devices_of(1)) == ((2, 0), (1,))
    assert plan.bottleneck_s == 3.0


def test_fewer_items_than_microbatches_are_refused():
    with pytest.raises(SettingError, match="at least one item"):
        price(Problem([[1.0]]), [0, 1]).predict(3, 4)


@pytest.mark.parametrize("boundaries", [[0, 3], [1, 2], [0, 1, 1, 2], [2, 0], [0]])
def test_boundaries_that_are_no_partition_are_refused(boundaries):
    with pytest.raises(SettingError, match="not those of a partition"):
        price(Problem([[1.0, 1.0]] * 3), boundaries)


def test_a_price_is_not_given_for_a_cut_that_is_refused():
    with pytest.raises(SettingError, match="works in place"):
        price(Problem([[1.0, 1.0]] * 2, refusals={1: "It works in place."}), [0, 1, 2])


def test_a_device_cannot_run_two_stages():
    with pytest.raises(SettingError, match="different device"):
        price(Problem([[1.0, 1.0]] * 2), [0, 1, 2], devices=[0, 0])
