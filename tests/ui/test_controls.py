import pytest

from labkit.errors import SettingError
from labkit.ui import Action, Choice, Number, Whole


def test_each_control_becomes_a_widget_with_its_whole_name(wire):
    made = [
        Choice("policy", "Policy", ("greedy", ("At most 5 ms", "wait"))).widget("wait"),
        Whole("cap", "Largest batch", 1, 64, "rows").widget(8),
        Number("rate_per_s", "Rate", 0.5, 1e4, "requests/s").widget(20.0),
    ]
    assert [type(control).__name__ for control in made] == ["Dropdown", "BoundedIntText", "BoundedFloatText"]
    assert [control.description for control in made] == ["Policy", "Largest batch (rows)", "Rate (requests/s)"]
    assert [control.value for control in made] == ["wait", 8, 20.0]
    assert {control.style.description_width for control in made} == {"initial"}


@pytest.mark.parametrize(
    ("control", "value", "said"),
    [
        (Choice("policy", "Policy", ("greedy",)), "max", r"policy is 'max'; it must be one of \['greedy'\]"),
        (Whole("cap", "Cap", 1, 64), 65, "cap is 65; it must be from 1 to 64"),
        (Number("rate", "Rate", 0.5, 9.0), 0.0, "rate is 0.0; it must be from 0.5 to 9.0"),
    ],
)
def test_a_default_outside_its_limits_is_refused(wire, control, value, said):
    with pytest.raises(SettingError, match=said):
        control.widget(value)


def test_an_action_is_a_button_with_its_text_as_its_name_that_counts_presses(wire):
    button = Action("kill", "Kill stage k").widget(3)
    assert (type(button).__mro__[1].__name__, button.description, button.value) == ("Button", "Kill stage k", 3)
    assert button.disabled  # until something runs
    button.click()
    button.click()
    assert button.value == 5
    assert "value" not in button.get_state()  # the browser needs no more of it than of any button
