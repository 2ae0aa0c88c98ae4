from collections.abc import Callable
from threading import Event

import pytest

from labkit.errors import MeasureError, SettingError
from labkit.labs import sharding_study, sharding_words
from labkit.labs.sharding_losses import Loss, Losses
from labkit.labs.sharding_study import CONTROL, WHOLE, Study, StudySettings, System, study
from labkit.labs.specimen import Specimen

LOSSES = Losses((Loss("kill", 0, 15.0, 40.0, 70.0), Loss("hang", 1, 510.0, 560.0, 600.0)), 30.0, 100, 0)


def _study(layered: Specimen, others_share: float = 0.0, **rates: tuple[float, ...]) -> Study:
    cuts = {WHOLE: layered.cut(1, 2), CONTROL: layered.cut(1, 2)}
    names = {"whole": WHOLE, "again": CONTROL, "best": "2 stages, best cut", "equal": "2 stages, equal count"}
    given = {"whole": (100.0, 100.0), "again": (101.0, 100.0), "best": (150.0, 150.0), "equal": (120.0, 120.0), **rates}
    systems = tuple(
        System(names[key], cuts.get(names[key]) or layered.cut(2, 2, "equal count"), values, 10.0)
        for key, values in given.items()
    )
    return Study(StudySettings(), "a test's CPU", systems, LOSSES, others_share)


def test_a_cut_pays_when_every_pair_says_so(layered: Specimen) -> None:
    found = _study(layered)
    assert found.best.name == "2 stages, best cut"
    assert found.pays() is True
    assert "pays" in found.verdict()
    assert "x1.50" in found.verdict()
    assert _study(layered, best=(150.0, 90.0)).pays() is None


def test_a_cut_that_answers_less_does_not_pay(layered: Specimen) -> None:
    found = _study(layered, best=(80.0, 82.0), equal=(70.0, 70.0))
    assert found.pays() is False
    assert "does not pay" in found.verdict()


def test_a_gain_within_what_the_control_differs_by_is_none(layered: Specimen) -> None:
    found = _study(layered, best=(150.0, 150.0), again=(160.0, 100.0))
    assert found.pays() is None
    assert "is not clear" in found.verdict()


def test_nothing_is_claimed_about_a_machine_that_others_kept_busy(layered: Specimen) -> None:
    found = _study(layered, others_share=0.5)
    assert found.pays() is None
    assert "other programs used 50 % of the cores" in found.verdict()


def test_every_key_number_has_a_class(layered: Specimen) -> None:
    rows = sharding_words.key_rows(_study(layered))
    assert {kind.split(",")[0] for _, _, kind in rows} == {"measured", "modelled", "bound"}
    assert dict((name, value) for name, value, _ in rows)["gain of the cut"].startswith("x1.50")


def test_the_kills_alone_are_told_as_kills(layered: Specimen) -> None:
    rows = {name: value for name, value, _ in sharding_words.key_rows(_study(layered))}
    assert rows["a killed worker is noticed after (median of 1)"] == "15 ms"
    assert [row[0] for row in sharding_words.loss_rows(_study(layered))] == ["killed", "hung"]


def test_a_busy_machine_is_the_first_doubt(layered: Specimen) -> None:
    assert "do not quote" in sharding_words.doubts(_study(layered, others_share=0.5))[0]
    assert not any("do not quote" in said for said in sharding_words.doubts(_study(layered)))


def test_four_pairs_bring_an_interval(layered: Specimen) -> None:
    four = {key: (100.0 + n, 101.0, 99.0, 100.0) for n, key in enumerate(("whole", "again", "best", "equal"))}
    assert any("95 % interval" in said for said in sharding_words.doubts(_study(layered, **four)))


def test_the_errors_sign_says_whether_the_model_hoped_for_too_much(layered: Specimen) -> None:
    cut = layered.cut(2, 2)
    assert System("x", cut, (cut.rows_per_s / 2,), 1.0).error == pytest.approx(1.0)
    assert System("x", cut, (2 * cut.rows_per_s,), 1.0).error == pytest.approx(-0.5)


def test_a_whole_study_measures_everything_that_its_report_shows(
    layered: Specimen, given: Callable[[object], None]
) -> None:
    given(sharding_study)
    said: list[str] = []
    found = study(StudySettings(stages=3, rows=2, seconds=1.0, kills=2), say=said.append)
    names = [system.name for system in found.systems]
    assert names[0] == WHOLE
    assert names[-1] == CONTROL
    assert {"2 stages, best cut", "3 stages, best cut"} <= set(names)
    assert all(rate > 0 for system in found.systems for rate in system.rates)
    assert [loss.fault for loss in found.losses.each] == ["kill", "kill", "hang"]
    assert all(loss.noticed_ms <= loss.replaced_ms for loss in found.losses.each)
    assert found.losses.failed == 0
    assert len(sharding_words.system_rows(found)) == len(names)
    assert {point.x for point in sharding_words.points(found)} == {1, 2, 3}
    assert len(sharding_words.result_rows(found)) == 3 * len(names) + 9
    assert len(said) == 3


def test_a_stopped_study_raises_instead_of_reporting_half(given: Callable[[object], None]) -> None:
    given(sharding_study)
    stop = Event()
    stop.set()
    with pytest.raises(MeasureError, match="half-way"):
        study(StudySettings(rows=2), stop, say=lambda text: None)


def test_a_study_without_a_kill_is_refused() -> None:
    with pytest.raises(SettingError, match="kills is 0"):
        StudySettings(kills=0)
