"""Loops with inlined functions do what calls of the functions do, for any records."""

import traceback
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.chain.emission import LOOKS
from headgate.core.loops.loops import (
    HOLDERS,
    Gives,
    Loop,
    LoopWay,
    body_of,
    called_body,
    can_emit,
    emitting_loop,
    reduce_loop,
)
from headgate.core.loops.made_records import RecordMakers
from headgate.core.loops.state_calls import InlineState, StateCalls, state_attributes
from headgate.core.state.cursor import Cursor
from headgate.core.state.key_taking import RecordPart
from headgate.core.state.memory import PlainValue
from tests.core.chain.kit import definitions_of, values

OFFSET = 100


def described(value: int) -> tuple[str, int]:
    if value < 0:
        return "negative", -value
    total = 0
    for step in range(value % 4):
        total += step
    if total > 2:
        return f"{total}", total
    return str(value), OFFSET


def nothing_for_odd(value: int) -> Any:
    if value % 2:
        return
    return [value]


FUNCTIONS: list[Callable[[int], Any]] = [
    described,
    nothing_for_odd,
    lambda value: (value, 1),
    lambda value: value * 2 if value > 3 else [value],
    lambda value: {"value": value},
    lambda value: (value, [value], "x"),
    lambda value: (value, *[value]),
    lambda value: (),
]


def loop_for(
    function: Any, gives: Gives = Gives.VALUE, *, is_called: bool = False, **options: Any
) -> Loop:
    """``loop(records[, times], sent)``; the function is called, or stands in it."""
    body = called_body(gives) if is_called else body_of(function, 1, definitions_of(function))
    assert body is not None
    way = LoopWay(**{"by_value": True, "keyed": False, "timed": False} | options)
    way = replace(way, has_context=False, gives=gives)
    call = None if is_called else function
    given = {**LOOKS, "call": function, "stamp": None}
    loop = emitting_loop(call, body, RecordMakers(body.function), given, way=way)
    assert loop is not None
    return loop


BOTH = pytest.mark.parametrize("is_called", [True, False])


FEW = settings(max_examples=settings.default.max_examples * 2 // 5)
"""Each example compiles a loop: milliseconds."""


@BOTH
@pytest.mark.parametrize("by_value", [True, False])
@pytest.mark.parametrize("function", FUNCTIONS)
@FEW
@given(records=st.lists(st.integers(-5, 20), max_size=30))
def test_each_result_is_that_of_a_call(
    function: Callable[[int], Any], by_value: bool, is_called: bool, records: list[int]
) -> None:
    found: list[Any] = []
    loop_for(function, is_called=is_called, by_value=by_value)(records, found)
    assert found == [function(record) for record in records]


def few(value: int) -> bool:
    return value % 3 == 1 and value < OFFSET


def few_of_others(value: int) -> Any:
    value += 1
    if value % 2:
        return
    if value % 3:
        return []
    return [value]


@BOTH
@pytest.mark.parametrize("function", [few, few_of_others, lambda value: value, lambda value: None])
@FEW
@given(records=st.lists(st.integers(-5, 20), max_size=30))
def test_records_are_chosen_with_their_times(
    function: Callable[[int], Any], is_called: bool, records: list[int]
) -> None:
    found: list[int] = []
    loop_for(function, Gives.VERDICT, is_called=is_called)(records, found)
    assert found == [value for value in records if function(value)]


class Holding:
    """A filter that keeps some of its records, in the ways that ``keep`` says."""

    def __init__(self, keep: Callable[[Any], Any]) -> None:
        self.keep = keep
        self.kept: list[Any] = []

    def filter(self, value: Any) -> bool:
        if len(value) % 2:
            self.kept.append(self.keep(value))
        return True

    def map(self, value: Any) -> Any:
        if len(value) % 2:
            self.kept.append(self.keep(value))
        return value

    def other(self, value: Any) -> Any:
        value = [*value]
        self.kept.append(value)
        return value


@BOTH
@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("method", ["filter", "map", "other"])
@pytest.mark.parametrize("keep", [lambda value: value, lambda value: [value], len])
def test_a_record_is_copied_if_somebody_beside_the_loop_holds_it(
    keep: Any, method: str, several: bool, is_called: bool
) -> None:
    """The list of the bundle does, too, and ``zip`` in a loop over several lists."""
    holding = Holding(keep)
    gives = Gives.VERDICT if method == "filter" else Gives.VALUE
    loop = loop_for(getattr(holding, method), gives, is_called=is_called, timed=several)
    records = [[number] * (1 + number % 4) for number in range(12)]
    expected, names = [list(record) for record in records], [id(record) for record in records]
    times: list[int] = []
    found: list[Any] = []
    stamped = {"_hg_stamp": times.append} if several else {}
    loop(records, *([range(12)] if several else []), found, **stamped)
    assert found == expected and times == (list(range(12)) if several else [])
    held = {id(value) for value in holding.kept}
    held |= {id(part) for value in holding.kept if type(value) is list for part in value}
    assert not held & {id(value) for value in found}
    if method != "other" and HOLDERS != (None, None):
        same = [id(value) == name for value, name in zip(found, names, strict=True)]
        assert same == [keep is len or len(value) % 2 == 0 for value in expected]


def test_enclosed_and_global_variables_are_read_when_a_record_comes() -> None:
    amount = 1
    add = lambda value: value + amount + OFFSET  # noqa: E731
    loop, found = loop_for(add), []
    loop([1], found)
    amount = 10
    loop([1], found)
    assert found == [102, 111]


@FEW
@given(st.lists(values, max_size=20))
def test_what_a_function_keeps_is_copied_before_it_goes_on(records: list[Any]) -> None:
    class Keeping:
        def __init__(self) -> None:
            self.kept: list[Any] = []

        def map(self, value: Any) -> Any:
            self.kept.append(value)
            return len(self.kept), self.kept

    found: list[Any] = []
    loop_for(Keeping().map)(records, found)
    assert found == [(n + 1, records[: n + 1]) for n in range(len(records))]


def test_an_error_has_the_line_and_the_name_of_the_function() -> None:
    loop = loop_for(lambda value: 1 // value)
    with pytest.raises(ZeroDivisionError) as caught:
        loop([1, 0], [])
    *_, last = traceback.extract_tb(caught.value.__traceback__)
    assert last.filename == __file__ and last.name == "<lambda>"
    assert last.line is not None and "1 // value" in last.line
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files.count(__file__) == 2, "this test, and the lambda"

    def halved(value: int) -> float:
        half = value / 2
        return 1 / half

    with pytest.raises(ZeroDivisionError) as caught:
        loop_for(halved)([1, 0], [])
    *_, last = traceback.extract_tb(caught.value.__traceback__)
    assert (last.name, last.line) == ("halved", "return 1 / half")


@pytest.mark.parametrize("by_value", [True, False])
@pytest.mark.parametrize("takes_keys", [True, False])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x[0], x[1] + y[1]),
        lambda x, y: x if x[1] > y[1] else y,
        lambda x, y: None if y[1] == 3 else (y[0], (x or y)[1]),
    ],
)
@FEW
@given(records=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=30))
def test_folding_is_that_of_calls(
    function: Any, takes_keys: bool, by_value: bool, records: Any
) -> None:
    absent, none = object(), object()
    kept: dict[str, Any] = {}
    found: list[Any] = []

    def begin(key: str, record: Any) -> None:
        kept[key] = record
        found.append(record)

    body = body_of(function, 2, definitions_of(function))
    assert body is not None
    given = {**LOOKS, "absent": absent, "none": none}
    given["key_of"] = itemgetter(0)
    part = RecordPart(0, False) if takes_keys else None
    loop = reduce_loop(
        function, body, RecordMakers(body.function), given, by_value=by_value, part=part
    )
    assert loop is not None
    entries = [(record[0], record) for record in records]
    lists = [records] if takes_keys else [records, [key for key, _ in entries]]
    loop(*lists, kept, begin, lambda key: (key, absent), found)
    state: dict[str, Any] = {}
    expected = []
    for key, record in entries:
        state[key] = function(state[key], record) if key in state else record
        expected.append(state[key])
    assert found == expected
    assert {key: None if value is none else value for key, value in kept.items()} == state


class Context:
    time_ms: int | None = None


class Running:
    """Yields where a loop may go wrong: in loops, behind a return, not at all."""

    def __init__(self, count: Any, last: Any) -> None:
        self.count = count
        self.last = last
        self.seen = 0

    def process_element(self, value: tuple[str, int], ctx: Any) -> Any:
        self.seen += 1
        number = (self.count.value() or 0) + value[1]
        if value[1] == 0:
            self.count.update(None)
            return
        self.count.update(number)
        for step in range(value[1] % 3):
            yield value[0], step, ctx.time_ms
        if number > 5:
            yield from [self.last.value(), number]
        self.last.update(value)
        yield [value[0], self.seen]


@pytest.mark.parametrize("by_value", [True, False])
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("inlines_states", [True, False])
@FEW
@given(records=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=30))
def test_a_process_function_yields_the_same(
    inlines_states: bool, timed: bool, by_value: bool, records: Any
) -> None:
    times = [index * 10 for index in range(len(records))]
    keys = [record[0] for record in records]
    outcomes = []
    for inlined in (False, True):
        cursor, context = Cursor(), Context()
        running = Running(PlainValue({}, cursor), PlainValue({}, cursor))
        sent: list[Any] = []
        stamps: list[int] = []
        if inlined:
            call = running.process_element
            body = body_of(call, 2, definitions_of(running))
            assert body is not None
            assert state_attributes(call, body) == ["count", "last"]
            states = StateCalls(body, {"count": InlineState("value"), "last": InlineState("value")})
            given = {**LOOKS, "CONTEXT": context, "cursor": cursor, "stamp": stamps.append}
            given |= {"piece": 10_000, "send_on": None}
            loop = emitting_loop(
                *(call, body, RecordMakers(body.function), given),
                way=LoopWay(by_value, keyed=True, timed=timed),
                states=states if inlines_states else None,
            )
            assert loop is not None
            entries = [running.count.entries, running.last.entries] if inlines_states else []
            loop(records, keys, *([times] if timed else []), sent, *entries)
        else:
            for record, key, time_ms in zip(records, keys, times, strict=True):
                cursor.key, context.time_ms = key, time_ms if timed else None
                for value in running.process_element(record, context):
                    sent.append(value)
                    stamps += [time_ms] if timed else []
        outcomes.append((sent, stamps, running.count.entries, running.last.entries, running.seen))
    assert outcomes[0] == outcomes[1]


class Endless:
    def process_element(self, value: int, ctx: Any) -> Any:
        while True:
            yield value


class EndlessUntilBreak:
    def process_element(self, value: int, ctx: Any) -> Any:
        while True:
            yield value
            if value:
                continue
            break


@pytest.mark.parametrize("endless", [Endless(), EndlessUntilBreak()])
def test_a_function_that_yields_without_end_is_sent_in_pieces(endless: Any) -> None:
    sent: list[int] = []
    pieces: list[int] = []

    def send_on() -> None:
        pieces.append(len(sent))
        sent.clear()
        if len(pieces) == 3:
            raise KeyboardInterrupt

    call = endless.process_element
    body = body_of(call, 2, definitions_of(endless))
    assert body is not None
    given = {**LOOKS, "CONTEXT": Context(), "cursor": None, "stamp": None}
    given |= {"piece": 7, "send_on": send_on}
    way = LoopWay(by_value=True, keyed=False, timed=False)
    loop = emitting_loop(call, body, RecordMakers(body.function), given, way=way)
    assert loop is not None
    with pytest.raises(KeyboardInterrupt):
        loop([1], sent)
    assert pieces == [7, 7, 7]


@pytest.mark.parametrize(
    "function",
    [str, len, "text", lambda value, more: value, lambda value, more=1: value],
)
def test_what_cannot_be_inlined_is_called(function: Any) -> None:
    assert body_of(function, 1, definitions_of(function)) is None


def test_a_generator_that_returns_a_value_is_called() -> None:
    done: list[int] = []

    class Returning:
        def process_element(self, value: int, ctx: Any) -> Any:
            yield value
            return done.append(value)

    call = Returning().process_element
    body = body_of(call, 2, definitions_of(Returning()))
    assert body is not None
    assert not can_emit(body, LoopWay(by_value=True, keyed=False, timed=False))


def test_variables_do_not_outlive_their_record() -> None:
    class Growing:
        def __init__(self) -> None:
            self.data = bytearray()

        def map(self, value: int) -> int:
            self.data.append(value)
            view = memoryview(self.data)  # while it is there the data cannot grow
            return sum(view)

    found: list[int] = []
    loop_for(Growing().map)([1, 2, 3], found)
    assert found == [1, 3, 6]


def test_a_method_that_assigns_self_or_its_context_is_called() -> None:
    class Odd:
        def map(self, value: int) -> int:
            self = value  # noqa: F841
            return value

        def process_element(self, value: int, ctx: Any) -> Any:
            ctx = value
            yield ctx

    assert body_of(Odd().map, 1, definitions_of(Odd())) is None
    call = Odd().process_element
    body = body_of(call, 2, definitions_of(Odd()))
    assert body is not None
    assert not can_emit(body, LoopWay(by_value=True, keyed=False, timed=False))
