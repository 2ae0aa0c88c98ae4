import pytest

from labkit.errors import SettingError
from labkit.sharding.link import Link, measure_link
from labkit.sharding.problem import Problem, Tied


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"layer_s": [1.0, 2.0]}, "one row per device"),
        ({"layer_s": [[-1.0]]}, "negative"),
        ({"layer_s": [[float("nan")]]}, "not finite"),
        ({"layer_s": [[1.0]], "cut_bytes": [1.0]}, "one number more"),
        ({"layer_s": [[1.0]], "memory_bytes": [0.0]}, "Leave that device out"),
        ({"layer_s": [[1.0]], "links": [[Link()], [Link()]]}, "row per device"),
        ({"layer_s": [[1.0]], "names": ("a", "b")}, "2 names for 1 layers"),
        ({"layer_s": [[1.0]], "rows": 0}, "at least 1"),
        ({"layer_s": [[1.0]], "tied": (Tied(1, (3,)),)}, "not there"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(given, words):
    with pytest.raises(SettingError, match=words):
        Problem(**given)


def test_its_arrays_cannot_be_changed_from_outside():
    times = [[1.0, 2.0]]
    problem = Problem(times)
    with pytest.raises(ValueError, match="read-only"):
        problem.layer_s[0, 0] = 5


def test_the_ends_are_always_allowed_and_refused_cuts_are_not():
    assert Problem([[1, 1, 1]], allowed=[False] * 4, refusals={2: "no"}).allowed.tolist() == [True, False, False, True]


def test_links_between_devices_are_read_in_their_direction():
    problem = Problem([[1, 1]] * 2, cut_bytes=[0, 8, 0], links=[[Link(), Link(1, 4)], [Link(2, 8), Link()]])
    assert (problem.link_s(0, 1, 1), problem.link_s(1, 0, 1)) == (3.0, 3.0)
    assert problem.link_s(0, 0, 1) == 0.0


def test_a_link_is_found_again_from_its_own_times():
    link = Link(2e-5, 3e9)
    sizes = [1e3, 1e5, 1e7]
    found = Link.fit(sizes, [link.seconds(size) for size in sizes])
    assert found.alpha_s == pytest.approx(2e-5, rel=1e-6)
    assert found.bytes_per_s == pytest.approx(3e9, rel=1e-5)


def test_a_fit_never_gives_negative_parts():
    assert Link.fit([1e3, 1e6], [1e-9, 1e-3]).alpha_s == 0.0
    assert Link.fit([1e3, 1e6], [1e-3, 1e-4]).bytes_per_s == float("inf")


def test_this_machine_copies_memory_at_a_believable_rate():
    link = measure_link("cpu", "cpu", sizes_bytes=(2**12, 2**20))
    assert link.bytes_per_s > 1e7
    assert 0 <= link.alpha_s < 1


@pytest.mark.parametrize("given", [{"alpha_s": -1.0}, {"bytes_per_s": 0.0}, {"alpha_s": float("inf")}])
def test_an_impossible_link_is_refused(given):
    with pytest.raises(SettingError):
        Link(**given)
