"""The border of the room."""

from headgate.core.window import plan as border
from headgate.core.window.operator import WindowOperator
from headgate.functions.assigners import TumblingEventTimeWindows
from tests.core.window.kit import SUMS, plan


def test_a_plan_becomes_an_operator_for_each_task() -> None:
    one = plan(TumblingEventTimeWindows(10), SUMS)
    first, second = border.make_window_operator(one), border.make_window_operator(one)
    assert isinstance(first, WindowOperator)
    assert first is not second


def test_all_that_describes_windows_is_found_here() -> None:
    for name in border.__all__:
        assert hasattr(border, name)
