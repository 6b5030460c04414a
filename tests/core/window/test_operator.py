"""The window operator: which keeper it takes, and that everything is closed."""

from typing import Any

import pytest

from headgate.base.elements import Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.core.window.general import GeneralKeeper, MergingKeeper
from headgate.core.window.operator import WindowOperator
from headgate.core.window.sessions import SessionKeeper
from headgate.core.window.sliced import SlicedKeeper
from headgate.core.window.spec import Aggregated, Reduced, WindowCall
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import KeptOutput, context
from tests.core.window.kit import LISTED, SUMS, CollectingAggregate, Lab, plan

TEN = TumblingEventTimeWindows(10)


def test_windows_are_kept_in_the_way_that_suits_them() -> None:
    assert type(Lab(plan(TEN, SUMS)).operator._keeper) is SlicedKeeper
    assert type(Lab(plan(TEN, SUMS), bundled=False).operator._keeper) is GeneralKeeper
    assert type(Lab(plan(GlobalWindows(), SUMS)).operator._keeper) is GeneralKeeper
    sessions = plan(EventTimeSessionWindows(5), SUMS)
    assert type(Lab(sessions).operator._keeper) is SessionKeeper
    assert type(Lab(sessions, bundled=False).operator._keeper) is MergingKeeper


class LoggingFunction:
    """A user's function that logs when it is opened and closed, and may fail then."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self._fails = fails

    def open(self, runtime_context: Any) -> None:
        self._log("open")

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return inputs

    def close(self) -> None:
        self._log("close")

    def _log(self, what: str) -> None:
        self.calls.append(what)
        if what == self._fails:
            raise RuntimeError(f"failed in {what}")


def test_both_functions_are_opened_and_closed_once() -> None:
    fold, function = LoggingFunction(), LoggingFunction()
    lab = Lab(plan(TEN, Reduced(fold), WindowCall("apply", function)))
    lab.end()
    lab.operator.close()
    assert fold.calls == function.calls == ["open", "close"]


def test_the_other_function_and_the_state_are_closed_when_one_fails_to() -> None:
    fold, function = LoggingFunction(), LoggingFunction(fails="close")
    lab = Lab(plan(TEN, Reduced(fold), WindowCall("apply", function)))
    keyed_context: Any = lab.operator._keyed
    closed: list[str] = []
    keyed_context.close = lambda: closed.append("keyed context")
    with pytest.raises(RuntimeError, match="failed in close"):
        lab.operator.close()
    assert fold.calls == ["open", "close"]
    assert closed == ["keyed context"]


@pytest.mark.parametrize("fails", ["fold", "function"])
def test_an_operator_that_could_not_be_opened_can_be_closed(fails: str) -> None:
    fold = LoggingFunction("open" if fails == "fold" else "")
    function = LoggingFunction("open" if fails == "function" else "")
    operator = WindowOperator(plan(TEN, Reduced(fold), WindowCall("apply", function)))
    operator.close()
    operator.set_up(KeptOutput())
    with pytest.raises(RuntimeError, match="failed in open"):
        operator.open(context())
    operator.close()
    operator.close()
    for user_function in (fold, function):
        assert user_function.calls in ([], ["open", "close"])
    assert operator.late is None or not operator.late.count


def test_a_function_that_folds_has_no_keyed_state() -> None:
    class Asks(CollectingAggregate):
        def open(self, runtime_context: Any) -> None:
            runtime_context.get_state(ValueStateDescriptor("x"))

    with pytest.raises(RuntimeError, match="'windows'"):
        Lab(plan(TEN, Aggregated(Asks())))


def test_results_go_out_before_the_watermark_that_fired_them() -> None:
    lab = Lab(plan(TEN, SUMS))
    lab.send((("a", 1), 1))
    order: list[Any] = []
    lab.output.collect = order.append  # type: ignore[method-assign]
    lab.output.emit_watermark = order.append  # type: ignore[method-assign]
    lab.watermark(9)
    assert [getattr(element, "records", element) for element in order] == [[("a", 1)], Watermark(9)]


def test_an_error_of_the_key_selector_says_so() -> None:
    lab = Lab(plan(TEN, SUMS, key_of=lambda record: record["no"]))
    with pytest.raises(UserFunctionFailed, match="'windows' failed when the key"):
        lab.send((("a", 1), 1))


def test_a_list_needs_a_function() -> None:
    with pytest.raises(AssertionError):
        WindowOperator(plan(TEN, LISTED, None))
