"""Any module or function in a model's place."""

import pytest
import torch

from labkit.engine import Prepare
from labkit.errors import SettingError
from labkit.models import wrap
from labkit.models.photo import PreparePhoto


def test_a_module_is_wrapped_in_eval_mode_under_its_class_name():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.9))
    model = wrap(module)
    assert model.module is module
    assert not module.training
    assert (model.name, model.device) == ("Sequential", "cpu")
    torch.testing.assert_close(model.answer([1.0, 2.0, 3.0]), module[0](torch.tensor([1.0, 2.0, 3.0])).detach())


def test_a_function_becomes_a_module():
    def double(rows):
        return rows * 2

    model = wrap(double)
    assert isinstance(model.module, torch.nn.Module)
    assert model.name == "double"
    assert model.module(torch.ones(2, 3)).tolist() == [[2.0] * 3] * 2


def test_a_plain_function_prepares():
    model = wrap(lambda rows: rows, prepare=lambda text: [float(len(text))], name="length")
    assert isinstance(model.prepare, Prepare)
    assert model.answer("four").tolist() == [4.0]
    staging = torch.zeros(2, 1)
    row = model.prepare.into("seven77", lambda shape, dtype, real_units=None: staging[1])
    assert row.data_ptr() == staging[1].data_ptr()
    assert staging.tolist() == [[0.0], [7.0]]


def test_a_prepare_is_taken_as_it_is():
    prepare = PreparePhoto()
    assert wrap(torch.nn.Flatten(), prepare=prepare).prepare is prepare


def test_what_cannot_be_called_is_refused():
    with pytest.raises(SettingError, match="The model is a str"):
        wrap("resnet")
