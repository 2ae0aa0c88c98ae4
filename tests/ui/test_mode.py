import pytest

from labkit.errors import SettingError
from labkit.ui.mode import mode


@pytest.mark.parametrize("name", ["JPY_SESSION_NAME", "VOILA_KERNEL_ID", "VSCODE_PID", "COLAB_RELEASE_TAG"])
@pytest.mark.parametrize("wish", [{}, {"LABKIT_MODE": "auto"}, {"LABKIT_MODE": ""}])
def test_auto_is_live_where_a_front_end_started_the_kernel(name, wish):
    assert mode({name: "x", **wish}) == "live"
    assert mode(wish) == "headless"


def test_the_wish_overrules_the_environment():
    assert mode({"LABKIT_MODE": "live"}) == "live"
    assert mode({"LABKIT_MODE": " Headless ", "VSCODE_PID": "7"}) == "headless"


def test_a_wrong_wish_names_itself_and_the_choices():
    with pytest.raises(SettingError, match=r"LABKIT_MODE is 'lively'; it must be one of auto, live, headless"):
        mode({"LABKIT_MODE": "lively"})
