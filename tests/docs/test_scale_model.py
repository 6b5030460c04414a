"""The model of a thousand task managers agrees with the machines where both can run."""

import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from headgate.base.settings import ExchangeSettings, FlowControl

SCRIPT = Path(__file__).parent.parent.parent / "docs" / "scale_model.py"


@pytest.fixture(scope="module")
def model() -> ModuleType:
    spec = util.spec_from_file_location("scale_model", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["scale_model"] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [4, 8])
def test_producers_stand_still_after_as_many_buffers_as_the_model_says(
    model: ModuleType, count: int
) -> None:
    settings = model.settings_for(FlowControl.CREDIT)
    predicted = model.until_blocked(count, settings, 0.1, 1.0).buffers
    assert model.real_until_blocked(count, FlowControl.CREDIT) == pytest.approx(predicted, rel=0.1)


def test_no_buffer_needs_more_than_one_message_of_credit(model: ModuleType) -> None:
    seen = model.real_traffic(4, FlowControl.CREDIT, 48)
    assert 0 < seen.credit <= seen.data
    assert model.real_traffic(4, FlowControl.TCP, 48).credit == 0


def test_memory_of_a_task_manager_grows_with_its_channels(model: ModuleType) -> None:
    small, large = (model.memory(count, ExchangeSettings()) for count in (100, 1000))
    assert large.exclusive == pytest.approx(10 * small.exclusive, rel=0.02)
    assert large.exclusive == pytest.approx(999 * 2 * 32 / 1024)


def test_the_picture_has_a_curve_for_each_way(model: ModuleType) -> None:
    root = ElementTree.fromstring(model.draw())
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 4
