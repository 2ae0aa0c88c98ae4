from dataclasses import dataclass

import pytest

from labkit.errors import SettingError
from labkit.ui import Chart, Level


@dataclass(frozen=True)
class Goal:
    slo_ms: float = 80.0


def test_a_level_stands_at_its_value_or_where_its_setting_says():
    assert Level("bound", 12.5).at(Goal()) == 12.5
    assert Level("SLO", "slo_ms").at(Goal(40.0)) == 40.0


def test_a_chart_takes_series_by_name_and_by_pattern():
    chart = Chart("t", "x", "y", series=("p99*", "mean"))
    assert [chart.takes(name) for name in ("p99", "p99 greedy", "mean", "means", "P99")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_bare_text_in_place_of_a_tuple_of_series_is_refused():
    with pytest.raises(SettingError, match="Give a tuple"):
        Chart("t", "x", "y", series="p99")
    with pytest.raises(SettingError, match="empty"):
        Chart("t", "", "y")
