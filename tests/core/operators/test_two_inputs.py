"""Operators with two inputs: a method of the function for each. Row 154."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.core.operators.two_inputs import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
    TwoInputOperator,
)
from headgate.functions.function import OutputTag
from headgate.functions.state import ListStateDescriptor, ValueStateDescriptor
from tests.core.chain.kit import NOW_MS, HandClock, KeptOutput, open_operator

pytestmark = pytest.mark.usefixtures("inlining")


class Both:
    """All methods of functions with two inputs, and a log."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.log.append("open")

    def close(self) -> None:
        self.log.append("close")

    def map1(self, value: int) -> Any:
        return value if value else None

    def map2(self, value: int) -> Any:
        return str(value)

    def flat_map1(self, value: int) -> Iterator[int]:
        yield from (value, value)

    def flat_map2(self, value: int) -> Any:
        return None if value else [0]

    def process_element1(self, value: int, ctx: Any) -> Iterator[Any]:
        yield "one", value, ctx.timestamp(), self.key_of(ctx)

    def process_element2(self, value: int, ctx: Any) -> Iterator[Any]:
        yield OutputTag("two"), (value, ctx.timestamp(), self.key_of(ctx))

    def key_of(self, ctx: Any) -> Any:
        return ctx.get_current_key() if hasattr(ctx, "get_current_key") else "no keys"


def feed(operator: TwoInputOperator, elements: list[tuple[int, int]]) -> KeptOutput:
    output = open_operator(operator)
    for number, value in elements:
        operator.process(Bundle([value], [value * 10]), number)
    operator.close()
    return output


arrivals = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), max_size=20)


@given(arrivals)
def test_each_input_has_its_own_map_and_none_is_dropped(elements: list[tuple[int, int]]) -> None:
    output = feed(CoMapOperator(Both()), elements)
    assert output.timed == [
        (str(value) if number else value, value * 10)
        for number, value in elements
        if number or value
    ]


@given(arrivals)
def test_each_input_has_its_own_flat_map(elements: list[tuple[int, int]]) -> None:
    output = feed(CoFlatMapOperator(Both()), elements)
    expected: list[tuple[int, int]] = []
    for number, value in elements:
        if number == 0:
            expected += [(value, value * 10)] * 2
        elif value == 0:
            expected.append((0, 0))
    assert output.timed == expected


def test_each_input_has_its_own_process_element() -> None:
    output = feed(CoProcessOperator(Both()), [(0, 1), (1, 2)])
    assert output.records == [("one", 1, 10, "no keys")]
    assert output.side_records("two") == [(2, 20, "no keys")]


def test_keys_are_taken_of_each_input_in_its_own_way() -> None:
    operator = KeyedCoProcessOperator(Both(), lambda v: v % 2, lambda v: f"k{v}")
    output = feed(operator, [(0, 3), (1, 4)])
    assert output.records == [("one", 3, 30, 1)]
    assert output.side_records("two") == [(4, 40, "k4")]


@pytest.mark.parametrize("make", [CoMapOperator, CoFlatMapOperator, CoProcessOperator])
def test_the_function_is_opened_and_closed_once(make: type[TwoInputOperator]) -> None:
    function = Both()
    operator = make(function)
    assert operator.inputs == 2
    open_operator(operator)
    operator.close()
    operator.close()
    assert function.log == ["open", "close"]


def test_what_is_not_iterable_names_the_method() -> None:
    class Wrong(Both):
        def flat_map2(self, value: int) -> Any:
            return 7

    operator = CoFlatMapOperator(Wrong())
    open_operator(operator)
    with pytest.raises(TypeError, match="flat_map2 must return an iterable"):
        operator.process(Bundle([1]), 1)


# Keys, state and timers.


class Matching:
    """Keeps what comes first on either side and sends the pair; a timer tells who stays alone."""

    def open(self, runtime_context: Any) -> None:
        self.alone = runtime_context.get_list_state(ListStateDescriptor("alone"))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._meet("one", value, ctx)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._meet("two", value, ctx)

    def _meet(self, side: str, value: Any, ctx: Any) -> Iterator[Any]:
        waiting = list(self.alone.get())
        if waiting and waiting[0][0] != side:
            self.alone.clear()
            yield ctx.get_current_key(), waiting[0], (side, value)
        else:
            self.alone.add((side, value))
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 100)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        for found in self.alone.get():
            yield OutputTag("alone"), (timestamp, ctx.get_current_key(), found)
        self.alone.clear()


def test_both_sides_share_the_state_of_a_key_and_its_timers() -> None:
    operator = KeyedCoProcessOperator(Matching(), lambda v: v % 10, lambda v: v // 10)
    output = open_operator(operator)
    operator.process(Bundle([13, 24], [5, 6]), 0)
    operator.process(Bundle([39, 70], [7, 8]), 1)
    assert output.timed == [((3, ("one", 13), ("two", 39)), 7)]
    operator.watermark_advanced(Watermark(106))
    assert output.side_records("alone") == [(106, 4, ("one", 24))]
    operator.watermark_advanced(Watermark(108))
    assert output.side_records("alone")[1:] == [(108, 7, ("two", 70))]
    assert output.elements == [Watermark(106), Watermark(108)]
    operator.close()


def test_timers_of_processing_time_fire_on_two_inputs_too() -> None:
    class Later:
        def process_element1(self, value: int, ctx: Any) -> None:
            ctx.timer_service().register_processing_time_timer(NOW_MS + value)

        process_element2 = process_element1

        def on_timer(self, timestamp: int, ctx: Any) -> list[Any]:
            return [timestamp - NOW_MS]

    clock = HandClock()
    operator = KeyedCoProcessOperator(Later(), lambda v: 0, lambda v: 0)
    output = open_operator(operator, within=clock.context())
    operator.process(Bundle([3]), 0)
    operator.process(Bundle([2]), 1)
    clock.move_to(NOW_MS + 9)
    assert output.records == [2, 3]
    operator.close()


class Latest:
    """State under all methods of functions with two inputs."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def map1(self, value: Any) -> Any:
        before = self.last.value()
        self.last.update(value)
        return before

    map2 = map1

    def flat_map1(self, value: Any) -> Iterator[Any]:
        yield self.last.value()
        self.last.update(value)

    flat_map2 = flat_map1


@pytest.mark.parametrize("make", [CoMapOperator, CoFlatMapOperator])
def test_maps_and_flat_maps_of_two_keyed_streams_have_state(make: type[TwoInputOperator]) -> None:
    operator = make(Latest(), (lambda v: v[0], lambda v: v[1]))
    output = feed_pairs(operator, [(0, ("a", 1)), (1, (2, "a")), (0, ("b", 3)), (0, ("a", 4))])
    assert [record for record in output.records if record is not None] == [("a", 1), (2, "a")]


def feed_pairs(operator: TwoInputOperator, elements: list[tuple[int, Any]]) -> KeptOutput:
    output = open_operator(operator)
    for number, value in elements:
        operator.process(Bundle([value]), number)
    operator.close()
    return output


def test_without_keys_there_is_no_state() -> None:
    operator = CoMapOperator(Latest())
    with pytest.raises(RuntimeError, match=r"'last' was asked for by 'op'.*KeyedStream"):
        open_operator(operator)
    operator.close()


def test_a_process_function_without_keys_reads_the_times() -> None:
    seen: list[Any] = []

    class Look(Both):
        def process_element1(self, value: int, ctx: Any) -> None:  # type: ignore[override]
            timers = ctx.timer_service()
            seen.append((timers.current_watermark(), timers.current_processing_time()))

    operator = CoProcessOperator(Look())
    open_operator(operator)
    operator.process(Bundle([1]), 0)
    operator.watermark_advanced(Watermark(9))
    operator.process(Bundle([1]), 0)
    assert seen == [(MIN_WATERMARK_MS, NOW_MS), (9, NOW_MS)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_key_selector_that_fails_names_the_operator(number: int) -> None:
    operator = KeyedCoProcessOperator(Both(), lambda v: v["one"], lambda v: v["two"])
    open_operator(operator)
    with pytest.raises(UserFunctionFailed, match="'op' failed when the key of a record was"):
        operator.process(Bundle([{}]), number)


def test_in_a_batch_a_key_ends_with_its_timers_and_its_state() -> None:
    operator = KeyedCoProcessOperator(Matching(), lambda v: v % 10, lambda v: v // 10)
    output = open_operator(operator)
    operator.process(Bundle([13], [5]), 0)
    operator.key_ended()
    assert output.side_records("alone") == [(105, 3, ("one", 13))]
    operator.process(Bundle([39], [7]), 1)
    operator.key_ended()
    assert output.side_records("alone")[1:] == [(107, 3, ("two", 39))]
    assert not output.records
    operator.close()
