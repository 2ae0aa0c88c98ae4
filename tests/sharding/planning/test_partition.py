import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.errors import SettingError, UnknownName
from labkit.sharding.link import Link
from labkit.sharding.partition import partition
from labkit.sharding.price import price
from labkit.sharding.problem import Problem, Tied

# Whole seconds and bytes and bandwidths of powers of two: sums come out exact, so results are compared with ==.
SECONDS = st.integers(0, 9)
BYTES = st.integers(0, 16)
LINKS = st.builds(Link, st.integers(0, 3).map(float), st.sampled_from([1.0, 4.0, float("inf")]))


@st.composite
def problems(draw, devices=4, layers=6, alike=False):
    count, size = draw(st.integers(1, devices)), draw(st.integers(1, layers))
    row = st.lists(SECONDS, min_size=size, max_size=size)
    if alike:  # devices that come in a few kinds, as in a real machine
        kinds = draw(st.lists(row, min_size=1, max_size=2))
        times = [draw(st.sampled_from(kinds)) for _ in range(count)]
        links, caps = draw(LINKS), draw(st.sampled_from([[], [40.0] * count]))
    else:
        times = draw(st.lists(row, min_size=count, max_size=count))
        links = [[draw(LINKS) for _ in range(count)] for _ in range(count)]
        caps = draw(st.one_of(st.just([]), st.lists(st.integers(8, 80), min_size=count, max_size=count)))
    ties = st.builds(Tied, BYTES, st.sets(st.integers(0, size - 1), min_size=1).map(lambda found: tuple(sorted(found))))
    return Problem(
        times,
        cut_bytes=draw(st.lists(BYTES, min_size=size + 1, max_size=size + 1)),
        param_bytes=draw(st.lists(BYTES, min_size=size, max_size=size)),
        work_bytes=draw(st.lists(BYTES, min_size=size, max_size=size)),
        memory_bytes=caps,
        links=links,
        allowed=draw(st.lists(st.sampled_from([True, True, False]), min_size=size + 1, max_size=size + 1)),
        tied=tuple(draw(st.lists(ties, max_size=2))),
    )


def check(brute, problem, objective, replicas, order):
    wanted = brute.best(problem, objective, replicas, order)
    if wanted is None:
        with pytest.raises(SettingError, match=r"missing|finds no"):
            partition(problem, objective, replicas=replicas, order=order)
        return
    plan = partition(problem, objective, replicas=replicas, order=order)
    groups = [plan.devices_of(stage) for stage in range(len(plan))]
    share, bottleneck_s, latency_s = brute.cost(problem, groups, plan.boundaries)
    assert (plan.bottleneck_s, plan.latency_s) == (bottleneck_s, latency_s)
    found = {
        "throughput": (bottleneck_s, latency_s),
        "latency": (latency_s,),
        "memory": (share, bottleneck_s, latency_s),
    }
    assert found[objective] == wanted
    assert max(plan.replicas) <= replicas
    assert len(set(plan.devices)) == len(plan.devices)
    assert all(problem.allowed[cut] for cut in plan.boundaries)


quick = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(problem=problems(), objective=st.sampled_from(["throughput", "latency", "memory"]))
def test_in_the_given_order_no_plan_is_better(brute, problem, objective):
    check(brute, problem, objective, 1, "given")


@quick
@given(problem=problems(), objective=st.sampled_from(["throughput", "latency", "memory"]), data=st.data())
def test_with_replicas_no_plan_is_better(brute, problem, objective, data):
    check(brute, problem, objective, data.draw(st.integers(1, len(problem.devices))), "given")


@quick
@given(
    problem=problems(devices=3, layers=5),
    objective=st.sampled_from(["throughput", "latency", "memory"]),
    data=st.data(),
)
def test_over_all_orders_no_plan_is_better(brute, problem, objective, data):
    check(brute, problem, objective, data.draw(st.integers(1, len(problem.devices))), "any")


@quick
@given(
    problem=problems(devices=4, layers=5, alike=True), objective=st.sampled_from(["throughput", "latency", "memory"])
)
def test_devices_that_are_alike_are_counted_and_not_named(brute, problem, objective):
    check(brute, problem, objective, 1, "any")


def test_a_device_that_would_only_be_in_the_way_is_left_out():
    problem = Problem([[1, 1], [90, 90], [1, 1]])
    assert partition(problem).devices == (0, 2)


def test_a_link_that_costs_more_than_a_stage_saves_is_not_crossed():
    assert len(partition(Problem([[1, 1], [1, 1]], cut_bytes=[0, 50, 0], links=Link(0, 10)))) == 1


def test_a_layer_that_dominates_gets_replicas():
    plan = partition(Problem(np.tile([1, 6, 1], (5, 1))), replicas=3)
    assert plan.replicas == (1, 3, 1)
    assert plan.bottleneck_s == 2


def test_more_stages_do_not_shorten_the_way_of_one_item():
    equal = Problem(np.ones((4, 8)), links=Link(0.1))
    assert partition(equal, "latency").boundaries == (0, 8)
    assert price(equal, [0, 2, 4, 6, 8]).latency_s > partition(equal, "latency").latency_s


def test_a_weight_that_two_layers_of_a_stage_share_is_counted_once():
    tied = (Tied(10, (0, 1)),)
    assert partition(Problem([[1, 1]], memory_bytes=[10], tied=tied)).memory_bytes == (10,)
    assert price(Problem([[1, 1]] * 2, tied=tied), [0, 1, 2]).memory_bytes == (10, 10)


def test_eight_different_devices_are_tried_in_any_order():
    speeds = np.arange(1, 9)
    problem = Problem(speeds[:, None] * np.ones(24))
    plan = partition(problem, order="any")
    assert plan.bottleneck_s <= partition(problem).bottleneck_s
    assert plan.bottleneck_s >= 24 / (1 / speeds).sum()


def test_too_many_orders_are_refused_with_a_way_out():
    many = Problem(np.random.default_rng(0).uniform(1, 2, (20, 30)))
    with pytest.raises(SettingError, match="order='given'"):
        partition(many, order="any")


def test_many_devices_of_few_kinds_are_searched_in_any_order():
    problem = Problem(np.repeat([[1.0], [0.25]], 12, axis=0) * np.ones(60))
    assert partition(problem, order="any").bottleneck_s == 1.0


def test_a_thousand_layers_on_72_devices_keep_every_layer():
    rng = np.random.default_rng(7)
    problem = Problem(rng.uniform(0.5, 2, (72, 1)) * rng.uniform(0.5, 2, 1000), links=Link(1e-3, 1e3))
    plan = partition(problem)
    bound = problem.layer_s.min(axis=0).sum() / 72
    assert bound <= plan.bottleneck_s <= 1.5 * (1000 * 1.25 / (1 / problem.layer_s.mean(axis=1) * 1.25).sum())
    assert plan.boundaries[-1] == 1000


@pytest.mark.parametrize(("given", "kind"), [({"objective": "speed"}, UnknownName), ({"order": "best"}, UnknownName)])
def test_an_unknown_word_is_answered_with_the_known_ones(given, kind):
    with pytest.raises(kind, match="Known"):
        partition(Problem([[1.0]]), **given)


def test_replicas_beyond_the_devices_are_refused():
    with pytest.raises(SettingError, match=r"1\.\.2"):
        partition(Problem([[1.0]] * 2), replicas=3)


def test_shares_of_memory_need_a_cap_for_each_device():
    with pytest.raises(SettingError, match="cap for each"):
        partition(Problem([[1.0]] * 2, memory_bytes=[5, float("inf")]), "memory")
