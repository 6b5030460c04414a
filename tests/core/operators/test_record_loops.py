"""Which loop a bundle takes: inlined or called, with times or without, with states or without."""

import traceback
from collections.abc import Callable, Iterator
from operator import is_not
from typing import Any

import pytest

from headgate.base.elements import Bundle
from headgate.base.errors import UserFunctionFailed
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.emission import Collector
from headgate.core.chain.keyed_context import KeySelection
from headgate.core.loops.loops import LOOPED
from headgate.core.operators.one_input import ProcessContext, ReadOnlyTimerService
from headgate.core.operators.record_loops import RecordLoops, ResultLoop
from headgate.core.state.cursor import Cursor
from headgate.core.state.memory import PlainValue
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


class CountingByKind(Counting):
    """Which state it is depends on the record."""

    def __init__(self, *states: Any) -> None:
        self.states, self.turn = states, 0

    @property
    def count(self) -> Any:
        self.turn += 1
        return self.states[self.turn // 2 % 2]


class CountingElsewhere(Counting):
    def __init__(self, *states: Any) -> None:
        self.states, self.turn = states, 0

    def __getattribute__(self, name: str) -> Any:
        if name != "count":
            return super().__getattribute__(name)
        self.turn += 1
        return self.states[self.turn // 2 % 2]


class CountingByDictionary(CountingByKind):
    count: Any = None

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int, int]]:
        self.turn += 1
        self.__dict__["count"] = self.states[self.turn % 2]
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value, number, ctx.timestamp()


class Keeping:
    """Sends a list that it goes on to change."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, list[str]]]:
        self.kept.append(value)
        yield value, self.kept


class Returning:
    def process_element(self, value: str, ctx: Any) -> list[str]:
        return [value]


def loops_for(
    function: Any, cursor: Cursor, key_of: Callable[[Any], Any] = lambda record: record[0]
) -> tuple[RecordLoops, KeptOutput]:
    output = KeptOutput()
    info = TaskInfo("job", "vertex", 0, 1)
    context = OperatorContext("op", info, lambda: 0, definitions=tuple(definitions_of(function)))
    timers = ReadOnlyTimerService(context)
    call, collector = function.process_element, Collector(output)
    selection = KeySelection(key_of, "op")
    context_of_records = ProcessContext(timers)
    loops = RecordLoops(
        call,
        "it",
        context,
        collector,
        passed=context_of_records,
        cursor=cursor,
        selection=selection,
    )
    return loops, output


def test_a_bundle_with_times_and_one_without_take_their_own_loops() -> None:
    cursor, function = Cursor(), Counting()
    function.count = PlainValue({}, cursor)
    loops, output = loops_for(function, cursor)
    loops.run(Bundle(["a", "b"], [5, 6]))
    loops.run(Bundle(["a"]))
    first, second, third = output.records
    assert (first, second) == (("a", 1, 5), ("b", 1, 6))
    assert third[:2] == ("a", 2) and third[2] < 0, "a record without time has the smallest"
    assert [time for _, time in output.timed] == [5, 6, None]


def test_what_a_process_function_goes_on_to_change_is_copied_for_each_record() -> None:
    loops, output = loops_for(Keeping(), Cursor())
    loops.run(Bundle(["a", "b", "c"]))
    assert output.records == [("a", ["a"]), ("b", ["a", "b"]), ("c", ["a", "b", "c"])]


def test_states_of_other_kinds_are_called() -> None:
    cursor, function = Cursor(), Counting()
    function.count = loud = LoudValue()
    loops, output = loops_for(function, cursor)
    loops.run(Bundle(["a", "a"]))
    assert loud.reads == 2 and [number for _, number, _ in output.records] == [1, 2]
    function.count = PlainValue({"a": 7}, cursor)
    loops.run(Bundle(["a"]))
    assert output.records[-1][1] == 8 and loud.reads == 2


@pytest.mark.parametrize("kind", [CountingByKind, CountingElsewhere, CountingByDictionary])
def test_states_that_attributes_find_anew_are_called(kind: type[Any]) -> None:
    outcomes = []
    for inlined in (True, False):
        cursor = Cursor()
        function = kind(PlainValue({}, cursor), PlainValue({}, cursor))
        loops, output = loops_for(function, cursor)
        if inlined:
            function.__dict__["count"] = function.states[0]
            loops.run(Bundle(["a"] * 5))
        else:
            cursor.key = "a"
            context = ProcessContext(ReadOnlyTimerService(Any))
            for _ in range(5):
                output.collect(Bundle(list(function.process_element("a", context))))
        outcomes.append((output.records, [state.entries for state in function.states]))
    assert outcomes[0] == outcomes[1]


class Stopping:
    def process_element(self, value: str, ctx: Any) -> None:
        next(iter(()))


class StoppingGenerator:
    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        next(iter(()))
        yield value


@pytest.mark.parametrize("function", [Stopping(), StoppingGenerator()])
def test_a_stop_iteration_is_what_it_is_in_a_call(function: Any) -> None:
    loops, _ = loops_for(function, Cursor())
    assert loops.is_inlined
    with pytest.raises((StopIteration, RuntimeError)) as called:
        list(function.process_element("a", Any))
    with pytest.raises((StopIteration, RuntimeError)) as inlined:
        loops.run(Bundle(["a"]))
    assert repr(inlined.value) == repr(called.value)


def test_a_function_that_returns_lists_is_called() -> None:
    loops, output = loops_for(Returning(), Cursor())
    assert not loops.is_inlined
    loops.run(Bundle(["a", "b"]))
    assert output.records == ["a", "b"]


@pytest.mark.parametrize("key_of", [lambda record: record[0], lambda record: str(record[0])])
def test_keys_are_taken_by_the_loop_or_by_the_selector(key_of: Callable[[Any], Any]) -> None:
    cursor, function = Cursor(), Counting()
    function.count = PlainValue({}, cursor)
    loops, output = loops_for(function, cursor, key_of)
    loops.run(Bundle(["ab", "b", "ac"]))
    assert function.count.entries == {"a": 2, "b": 1}
    assert [record[:2] for record in output.records] == [("ab", 1), ("b", 1), ("ac", 2)]


def test_keys_that_cannot_be_hashed_or_are_no_number_are_frozen() -> None:
    cursor, function = Cursor(), Counting()
    function.count = PlainValue({}, cursor)
    loops, output = loops_for(function, cursor)
    keys = [1, [1], 1.0, [1], float("nan"), "x", float("nan"), True, None, {"a": [1]}]
    loops.run(Bundle([(key, 0) for key in keys]))
    assert [number for _, number, _ in output.records] == [1, 1, 2, 2, 1, 1, 2, 3, 1, 1]


def test_an_error_of_the_selector_is_its_own() -> None:
    function = Counting()
    function.count = PlainValue({}, Cursor())
    loops, _ = loops_for(function, Cursor())
    with pytest.raises(UserFunctionFailed, match="when the key of a record was selected") as caught:
        loops.run(Bundle([("a", 1), ()]))
    assert isinstance(caught.value.__cause__, IndexError)
    assert "lambda" in traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].name


class Growing:
    """Returns the same list each time, longer by one."""

    def __init__(self) -> None:
        self.kept: list[int] = []

    def map(self, value: int) -> list[int]:
        if value < 0:
            raise ValueError(value)
        self.kept.append(value)
        return self.kept


def test_every_result_is_what_the_function_returned_then() -> None:
    loop = ResultLoop(Growing().map)
    sent = [loop.results([1, 2]), loop.results([]), loop.results(range(3, 5))]
    assert sent == [[[1], [1, 2]], [], [[1, 2, 3], [1, 2, 3, 4]]]
    assert ResultLoop(Growing().map, copies=False).results([1, 2]) == [[1, 2], [1, 2]]


def test_after_an_error_results_go_on_with_the_next_value() -> None:
    found: list[Any] = []
    loop, values = ResultLoop(Growing().map), iter([1, -1, 2])
    with pytest.raises(ValueError, match="-1"):
        loop.add_results(values, found)
    loop.add_results(values, found)
    assert found == [[1], [1, 2]]


def test_values_of_a_list_that_somebody_keeps_are_copied() -> None:
    values = [[1], [2]]
    results = ResultLoop(lambda value: value).results(values)
    assert results == values and all(map(is_not, results, values))


def test_an_error_at_a_value_is_about_no_record_of_a_bundle() -> None:
    with pytest.raises(ValueError, match="-1") as caught:
        ResultLoop(Growing().map).results([1, -1])
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    (looped,) = [frame.f_locals[LOOPED] for frame in frames if LOOPED in frame.f_locals]
    assert type(looped) is not list
