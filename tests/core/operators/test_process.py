"""Process functions: many records out, side outputs, a context for each record. Row 13, 16."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.core.operators.one_input import KeyedProcessOperator, ProcessOperator
from headgate.functions.context import TimeDomain
from headgate.functions.function import OutputTag
from headgate.functions.state import ListStateDescriptor, ValueStateDescriptor
from tests.core.chain.kit import NOW_MS, HandClock, cut, open_operator, run

pytestmark = pytest.mark.usefixtures("inlining")


class Halves:
    """Even numbers as they are, odd ones to the side, with what the context tells."""

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if value % 2:
            yield OutputTag("odd"), (value, ctx.timestamp())
        else:
            yield value, ctx.timestamp()


@given(
    st.lists(st.integers(0, 99), max_size=30),
    st.lists(st.integers(1, 7), max_size=6),
    st.booleans(),
)
def test_records_go_out_in_order_where_they_belong(
    records: list[int], cuts: list[int], timed: bool
) -> None:
    times: list[int | None] = [n * 10 for n in records]
    output = run(ProcessOperator(Halves()), cut(records, cuts, times if timed else None))
    seen = [(n, n * 10 if timed else MIN_WATERMARK_MS) for n in records]
    assert output.records == [pair for pair in seen if pair[0] % 2 == 0]
    assert output.side_records("odd") == [pair for pair in seen if pair[0] % 2]
    assert [time for _, time in output.timed] == [
        n * 10 if timed else None for n in records if n % 2 == 0
    ]


def test_a_plain_function_may_return_a_list_or_nothing() -> None:
    operator = ProcessOperator(lambda value, ctx: [value] if value > 1 else None)
    assert run(operator, [Bundle([1, 2, 3])]).records == [2, 3]


def test_what_is_not_iterable_is_refused() -> None:
    operator = ProcessOperator(lambda value, ctx: 5)
    open_operator(operator)
    with pytest.raises(TypeError, match="process_element must return an iterable"):
        operator.process(Bundle([1]), 0)


def test_a_keyed_function_knows_the_key() -> None:
    operator = KeyedProcessOperator(
        lambda value, ctx: [(ctx.get_current_key(), value)], lambda value: value % 3
    )
    output = run(operator, [Bundle([4, 5], [1, None])])
    assert output.records == [(1, 4), (2, 5)]


def test_without_keys_the_timer_service_tells_times_and_refuses_timers() -> None:
    seen: list[Any] = []

    def look(value: int, ctx: Any) -> None:
        timers = ctx.timer_service()
        seen.append((timers.current_watermark(), timers.current_processing_time()))
        for wrong in (
            timers.register_event_time_timer,
            timers.register_processing_time_timer,
            timers.delete_event_time_timer,
            timers.delete_processing_time_timer,
        ):
            with pytest.raises(RuntimeError, match=r"timers are only.*key_by\(\) before process"):
                wrong(1)

    operator = ProcessOperator(look)
    output = open_operator(operator)
    operator.process(Bundle([1]), 0)
    operator.watermark_advanced(Watermark(77))
    operator.process(Bundle([1]), 0)
    assert seen == [(MIN_WATERMARK_MS, NOW_MS), (77, NOW_MS)]
    assert output.watermark_ms == 77


def test_a_stop_iteration_in_a_generator_is_an_error() -> None:
    def stop(value: int, ctx: Any) -> Iterator[int]:
        yield value
        raise StopIteration

    operator = ProcessOperator(stop)
    open_operator(operator)
    with pytest.raises(RuntimeError):
        operator.process(Bundle([1, 2]), 0)


# State and timers on keyed streams.


class Counting:
    """Counts the records of a key; a timer sends the count and begins anew."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if value[1] is not None:
            ctx.timer_service().register_event_time_timer(value[1])
        yield ctx.get_current_key(), count

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", ctx.get_current_key(), timestamp, ctx.timestamp(), self.count.value()
        yield OutputTag("fired"), ctx.time_domain()
        self.count.clear()


def first(record: Any) -> Any:
    return record[0]


records = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), max_size=30)


@given(records, st.lists(st.integers(1, 7), max_size=6))
def test_each_key_has_its_own_state(found: list[Any], cuts: list[int]) -> None:
    output = run(KeyedProcessOperator(Counting(), first), cut(found, cuts))
    seen: dict[str, int] = {}
    expected = []
    for key, _ in found:
        seen[key] = seen.get(key, 0) + 1
        expected.append((key, seen[key]))
    assert output.records == expected


@pytest.mark.parametrize("key", [None, ["a", 1], {"k": [2]}, ("x", [3]), 1.5])
def test_keys_of_any_kind_have_state_and_are_told_as_the_selector_gave_them(key: Any) -> None:
    operator = KeyedProcessOperator(Counting(), first)
    output = open_operator(operator)
    for copy in (key, pickle.loads(pickle.dumps(key))):
        operator.process(Bundle([(copy, 5)]), 0)
    operator.watermark_advanced(Watermark(5))
    assert output.records == [(key, 1), (key, 2), ("timer", key, 5, 5, 2)]


def test_on_timer_has_the_key_and_its_state_and_sends_with_the_time_of_the_timer() -> None:
    operator = KeyedProcessOperator(Counting(), first)
    output = open_operator(operator)
    operator.process(Bundle([("a", 20), ("a", 10), ("b", 10), ("a", 20)], [1, 2, 3, 4]), 0)
    operator.watermark_advanced(Watermark(15))
    assert sorted(output.timed[4:]) == [
        (("timer", "a", 10, 10, 3), 10),
        (("timer", "b", 10, 10, 1), 10),
    ]
    assert output.side_records("fired") == [TimeDomain.EVENT_TIME] * 2
    operator.watermark_advanced(Watermark(MAX_WATERMARK_MS))
    assert output.timed[6:] == [(("timer", "a", 20, 20, None), 20)], "cleared by the first"
    assert output.elements == [Watermark(15), Watermark(MAX_WATERMARK_MS)]


def test_what_timers_send_goes_out_before_the_watermark() -> None:
    order: list[Any] = []
    operator = KeyedProcessOperator(Counting(), first)
    output = open_operator(operator)
    output.collect = lambda bundle: order.append(bundle.records)  # type: ignore[method-assign]
    output.emit_watermark = order.append  # type: ignore[method-assign,assignment]
    operator.process(Bundle([("a", 1)]), 0)
    operator.watermark_advanced(Watermark(1))
    assert order == [[("a", 1)], [("timer", "a", 1, 1, 1)], Watermark(1)]


class Alarm:
    """A timer of processing time for each record."""

    def process_element(self, value: int, ctx: Any) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + value)

    def on_timer(self, timestamp: int, ctx: Any) -> list[Any]:
        return [(ctx.get_current_key(), timestamp - NOW_MS, ctx.time_domain())]


def test_timers_of_processing_time_fire_by_the_clock_and_are_sent_on_at_once() -> None:
    clock = HandClock()
    operator = KeyedProcessOperator(Alarm(), lambda value: value % 2)
    output = open_operator(operator, within=clock.context())
    operator.process(Bundle([10, 11, 30]), 0)
    clock.move_to(NOW_MS + 12)
    assert output.timed == [
        ((0, 10, TimeDomain.PROCESSING_TIME), NOW_MS + 10),
        ((1, 11, TimeDomain.PROCESSING_TIME), NOW_MS + 11),
    ]
    operator.finish()
    operator.close()
    clock.move_to(NOW_MS + 99)
    assert len(output.records) == 2, "what is pending at the end never fires"


def test_a_timer_without_on_timer_is_told() -> None:
    operator = KeyedProcessOperator(
        lambda value, ctx: ctx.timer_service().register_event_time_timer(1), lambda value: 0
    )
    open_operator(operator)
    operator.process(Bundle([1]), 0)
    with pytest.raises(TypeError, match=r"registered a timer and has no on_timer; add the method"):
        operator.watermark_advanced(Watermark(1))


def test_on_timer_must_return_an_iterable() -> None:
    class Nothing(Counting):
        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            return None

    operator = KeyedProcessOperator(Nothing(), first)
    open_operator(operator)
    operator.process(Bundle([("a", 1)]), 0)
    with pytest.raises(TypeError, match="on_timer must return an iterable"):
        operator.watermark_advanced(Watermark(1))


def test_in_open_there_is_no_key_yet() -> None:
    class Early(Counting):
        def open(self, runtime_context: Any) -> None:
            super().open(runtime_context)
            self.count.update(1)

    operator = KeyedProcessOperator(Early(), first)
    with pytest.raises(RuntimeError, match="there is no current key here"):
        open_operator(operator)
    operator.close()


def test_a_key_selector_that_fails_names_the_operator() -> None:
    operator = KeyedProcessOperator(Counting(), lambda record: record["id"])
    open_operator(operator)
    with pytest.raises(UserFunctionFailed, match="'op' failed when the key .* KeyError: 'id'"):
        operator.process(Bundle([{}]), 0)


def test_values_kept_in_state_can_change_after_they_were_sent() -> None:
    class Gather:
        def open(self, runtime_context: Any) -> None:
            self.all = runtime_context.get_state(ValueStateDescriptor("all"))

        def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
            gathered = self.all.value() or []
            gathered.append(value)
            self.all.update(gathered)
            yield gathered

    output = run(KeyedProcessOperator(Gather(), lambda value: 0), [Bundle([1, 2]), Bundle([3])])
    assert output.records == [[1], [1, 2], [1, 2, 3]]


def test_functions_are_closed_and_so_is_their_state_also_after_a_failure() -> None:
    class Failing(Counting):
        def close(self) -> None:
            raise ValueError("close")

    operator = KeyedProcessOperator(Failing(), first)
    open_operator(operator)
    operator.process(Bundle([("a", None)]), 0)
    with pytest.raises(ValueError, match="close"):
        operator.close()
    assert operator._keyed is not None
    operator._cursor.key = "a"
    assert operator._function.function.count.value() is None  # type: ignore[attr-defined]


def test_state_of_two_kinds_under_one_name_is_refused() -> None:
    class Twice:
        def open(self, runtime_context: Any) -> None:
            runtime_context.get_state(ValueStateDescriptor("x"))
            runtime_context.get_list_state(ListStateDescriptor("x"))

        def process_element(self, value: Any, ctx: Any) -> None: ...

    with pytest.raises(ValueError, match="'x' is a value state already"):
        open_operator(KeyedProcessOperator(Twice(), first))


def test_in_a_batch_the_timers_of_a_key_fire_at_its_end_and_its_state_is_forgotten() -> None:
    seen: list[int] = []

    class Telling(Counting):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            seen.append(ctx.timer_service().current_watermark())
            ctx.timer_service().register_processing_time_timer(NOW_MS)
            yield from super().process_element(value, ctx)

        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            seen.append(ctx.timer_service().current_watermark())
            yield ctx.get_current_key(), timestamp, self.count.value()

    clock = HandClock()
    operator = KeyedProcessOperator(Telling(), first)
    output = open_operator(operator, within=clock.context())
    for key in ("a", "b"):
        operator.process(Bundle([(key, 9), (key, 3)]), 0)
        operator.key_ended()
    clock.move_to(NOW_MS + 1)
    expected = [
        [(key, 1), (key, 2), (key, 3, 2), (key, 9, 2), (key, NOW_MS, 2)] for key in ("a", "b")
    ]
    assert output.records == expected[0] + expected[1]
    assert seen == [*[MIN_WATERMARK_MS] * 2, *[MAX_WATERMARK_MS] * 3] * 2
    assert output.elements == [], "nobody behind learns of the time of one key"
    operator.process(Bundle([("a", None)]), 0)
    assert output.records[-1] == ("a", 1)
    operator.close()
