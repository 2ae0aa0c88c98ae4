import pytest

from labkit.errors import SettingError
from labkit.sharding.patience import Expectations, Patience


def learned(*seconds, **settings):
    expectations = Expectations(Patience(**settings))
    for one in seconds:
        expectations.add("job", one)
    return expectations


def test_the_first_job_of_a_kind_has_all_the_time_of_a_first_call():
    expectations = learned(*[0.01] * 50)
    assert expectations.limit_s("job", first=True) == 30.0
    assert expectations.limit_s("other", first=False) == 30.0
    assert expectations.limit_s("job", first=False) == 0.5


def test_the_limit_follows_the_mean_and_the_spread():
    steady, jumpy = learned(*[1.0] * 60), learned(*[0.5, 1.5] * 30)
    assert steady.limit_s("job", first=False) == pytest.approx(8.0, rel=0.01)
    assert jumpy.limit_s("job", first=False) > 2 * steady.limit_s("job", first=False)


def test_the_limit_is_never_below_what_jobs_have_just_taken():
    expectations = learned(*[0.1] * 50, *[2.0] * 30)
    assert expectations.limit_s("job", first=False) > 2.0


def test_a_slow_job_has_its_own_time_also_in_a_new_worker():
    assert learned(*[20.0] * 5).limit_s("job", first=True) > 100


def test_a_retry_has_twice_the_time():
    expectations = learned(*[1.0] * 60)
    once, again = (expectations.limit_s("job", first=False, retries=retries) for retries in (0, 1))
    assert again == 2 * once


@pytest.mark.parametrize("name", Patience.__dataclass_fields__)
def test_limits_of_zero_are_refused(name):
    with pytest.raises(SettingError, match=name):
        Patience(**{name: 0})
