"""Which loop a bundle takes: with times or without, with states inlined or called."""

from collections.abc import Iterator
from typing import Any

from headgate.base.elements import Bundle
from headgate.core.chain.collector import Collector
from headgate.core.chain.context import OperatorContext
from headgate.core.operators.process import ProcessContext, ReadOnlyTimerService
from headgate.core.operators.process_loops import ProcessLoops, process_loops
from headgate.core.state.cursor import Cursor
from headgate.core.state.memory_states import PlainValue
from headgate.functions.context import TaskInfo
from headgate.functions.state import ValueState
from tests.core.chain.kit import KeptOutput, definitions_of


class LoudValue(ValueState[Any]):
    """A state of another kind, which knows how often it was read."""

    def __init__(self) -> None:
        self.held: Any = None
        self.reads = 0

    def value(self) -> Any:
        self.reads += 1
        return self.held

    def update(self, value: Any) -> None:
        self.held = value

    def clear(self) -> None:
        self.held = None


class Counting:
    count: Any

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int, int]]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value, number, ctx.timestamp()


class Returning:
    def process_element(self, value: str, ctx: Any) -> list[str]:
        return [value]


def loops_for(function: Any, cursor: Cursor) -> tuple[ProcessLoops | None, KeptOutput]:
    output = KeptOutput()
    info = TaskInfo("job", "vertex", 0, 1)
    context = OperatorContext("op", info, lambda: 0, definitions=tuple(definitions_of(function)))
    timers = ReadOnlyTimerService(context)
    call, collector = function.process_element, Collector(output)
    return process_loops(call, context, collector, ProcessContext(timers), cursor), output


def test_a_bundle_with_times_and_one_without_take_their_own_loops() -> None:
    cursor, function = Cursor(), Counting()
    function.count = PlainValue({}, cursor)
    loops, output = loops_for(function, cursor)
    assert loops is not None
    assert loops.run(Bundle(["a", "b"], [5, 6]), ["a", "b"])
    assert loops.run(Bundle(["a"]), ["a"])
    first, second, third = output.records
    assert (first, second) == (("a", 1, 5), ("b", 1, 6))
    assert third[:2] == ("a", 2) and third[2] < 0, "a record without time has the smallest"
    assert [time for _, time in output.timed] == [5, 6, None]


def test_states_of_other_kinds_are_called() -> None:
    cursor, function = Cursor(), Counting()
    function.count = loud = LoudValue()
    loops, output = loops_for(function, cursor)
    assert loops is not None and loops.run(Bundle(["a", "a"]), ["a", "a"])
    assert loud.reads == 2 and [number for _, number, _ in output.records] == [1, 2]
    function.count = PlainValue({"a": 7}, cursor)
    assert loops.run(Bundle(["a"]), ["a"])
    assert output.records[-1][1] == 8 and loud.reads == 2


def test_a_function_that_returns_lists_is_called() -> None:
    loops, output = loops_for(Returning(), Cursor())
    assert loops is None or not loops.run(Bundle(["a"]), ["a"])
    assert not output.records
