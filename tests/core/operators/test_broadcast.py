"""Broadcast process functions: one side writes broadcast state, the other reads it."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Watermark
from headgate.core.operators.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from headgate.functions.context import TimeDomain
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tests.core.chain.kit import NOW_MS, HandClock, open_operator

pytestmark = pytest.mark.usefixtures("inlining")

LIMITS = MapStateDescriptor("limits")


class Above:
    """Sends values above the limit that the broadcast side has set for their kind."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value[1] > (ctx.get_broadcast_state(LIMITS).get(value[0]) or 0):
            yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        state = ctx.get_broadcast_state(LIMITS)
        if value[1] is None:
            del state[value[0]]
        else:
            state[value[0]] = value[1]
        yield "limits", dict(state.items())


elements = st.lists(
    st.tuples(st.booleans(), st.tuples(st.sampled_from("ab"), st.integers(1, 5))), max_size=20
)


@given(elements, st.booleans())
def test_the_normal_side_sees_what_the_broadcast_side_has_left(
    arrivals: list[tuple[bool, Any]], keyed: bool
) -> None:
    operator = (
        KeyedBroadcastProcessOperator(Above(), lambda value: value[0])
        if keyed
        else BroadcastProcessOperator(Above())
    )
    output = open_operator(operator)
    limits: dict[str, int] = {}
    expected: list[Any] = []
    for broadcast, (kind, number) in arrivals:
        operator.process(Bundle([(kind, number)]), int(broadcast))
        if broadcast:
            limits[kind] = number
            expected.append(("limits", dict(limits)))
        elif number > limits.get(kind, 0):
            expected.append((kind, number))
    operator.close()
    assert output.records == expected


@pytest.mark.parametrize("keyed", [False, True])
def test_what_initialize_state_puts_into_broadcast_state_is_seen_by_both_sides(
    keyed: bool,
) -> None:
    class Prepared(Above):
        def initialize_state(self, context: Any) -> None:
            context.get_operator_state_store().get_broadcast_state(LIMITS).put("a", 3)

    operator = (
        KeyedBroadcastProcessOperator(Prepared(), lambda value: value[0])
        if keyed
        else BroadcastProcessOperator(Prepared())
    )
    output = open_operator(operator)
    operator.process(Bundle([("a", 3), ("a", 4)]), 0)
    operator.process(Bundle([("b", 1)]), 1)
    assert output.records == [("a", 4), ("limits", {"a": 3, "b": 1})]
    operator.close()


def test_broadcast_state_is_removed_by_the_broadcast_side() -> None:
    operator = BroadcastProcessOperator(Above())
    output = open_operator(operator)
    operator.process(Bundle([("a", 5), ("a", None)]), 1)
    operator.process(Bundle([("a", 1)]), 0)
    assert output.records[-1] == ("a", 1)


def test_the_normal_side_cannot_change_broadcast_state() -> None:
    class Writing(Above):
        def process_element(self, value: Any, ctx: Any) -> Any:
            state = ctx.get_broadcast_state(LIMITS)
            assert not hasattr(state, "put") and not hasattr(state, "remove")
            assert list(state) == list(state.keys()) == ["a"] and "a" in state
            with pytest.raises(RuntimeError, match="can only be read here"):
                state.clear()
            state["a"] = 1

    operator = BroadcastProcessOperator(Writing())
    open_operator(operator)
    operator.process(Bundle([("a", 5)]), 1)
    with pytest.raises(TypeError, match="does not support item assignment"):
        operator.process(Bundle([("a", 1)]), 0)


@pytest.mark.parametrize("number", [0, 1])
def test_broadcast_state_needs_a_map_descriptor(number: int) -> None:
    class Wrong(Above):
        def process_element(self, value: Any, ctx: Any) -> Any:
            ctx.get_broadcast_state(ValueStateDescriptor("limits"))

        process_broadcast_element = process_element

    operator = BroadcastProcessOperator(Wrong())
    open_operator(operator)
    with pytest.raises(TypeError, match=r"ValueStateDescriptor\('limits'\) .* MapStateDescriptor"):
        operator.process(Bundle([1]), number)


class Times(Above):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return [(ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time())]

    process_broadcast_element = process_element


@pytest.mark.parametrize("keyed", [False, True])
def test_both_sides_know_the_times(keyed: bool) -> None:
    operator = (
        KeyedBroadcastProcessOperator(Times(), lambda value: 0)
        if keyed
        else BroadcastProcessOperator(Times())
    )
    output = open_operator(operator)
    for number in (0, 1):
        operator.process(Bundle([1]), number)
    operator.watermark_advanced(Watermark(7))
    for number in (0, 1):
        operator.process(Bundle([1], [9]), number)
    before, after = (MIN_WATERMARK_MS, MIN_WATERMARK_MS, NOW_MS), (9, 7, NOW_MS)
    assert output.records == [before, before, after, after]
    assert output.watermark_ms == 7


class Reminder:
    """Keyed state and timers on the normal side; the broadcast side sets the words."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        timers = ctx.timer_service()
        timers.register_event_time_timer(timers.current_watermark() + 10)
        timers.register_processing_time_timer(NOW_MS + 1)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(LIMITS).put("word", value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        word = ctx.get_broadcast_state(LIMITS)["word"]
        assert ctx.timestamp() == timestamp
        event = ctx.time_domain() is TimeDomain.EVENT_TIME
        yield (
            word,
            ctx.get_current_key(),
            self.count.value(),
            timestamp,
            event,
            (ctx.current_watermark()),
        )


def test_keyed_timers_of_the_normal_side_read_broadcast_state_when_they_fire() -> None:
    clock = HandClock()
    operator = KeyedBroadcastProcessOperator(Reminder(), lambda value: value)
    output = open_operator(operator, within=clock.context())
    operator.watermark_advanced(Watermark(0))
    operator.process(Bundle([["k"], ["k"]]), 0)
    operator.process(Bundle(["hello"]), 1)
    operator.watermark_advanced(Watermark(20))
    assert output.timed == [(("hello", ["k"], 2, 10, True, 20), 10)]
    operator.process(Bundle(["goodbye"]), 1)
    clock.move_to(NOW_MS + 1)
    assert output.timed[1:] == [(("goodbye", ["k"], 2, NOW_MS + 1, False, 20), NOW_MS + 1)]
    operator.close()


def test_the_broadcast_side_has_no_key_and_so_no_keyed_state() -> None:
    class Reaching(Reminder):
        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            self.count.update(5)

    operator = KeyedBroadcastProcessOperator(Reaching(), lambda value: value)
    open_operator(operator)
    operator.process(Bundle(["k"]), 0)
    with pytest.raises(RuntimeError, match=r"no current key here.*broadcast stream"):
        operator.process(Bundle([1]), 1)
    operator.close()


COUNT = ValueStateDescriptor("count")
SEEN = ListStateDescriptor("seen")
NAMES = MapStateDescriptor("names")
SUM = ReducingStateDescriptor("sum", lambda a, b: a + b)


class Resetting:
    """The broadcast side looks at, and changes, the state of all keys."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(COUNT)
        self.seen = runtime_context.get_list_state(SEEN)
        self.names = runtime_context.get_map_state(NAMES)
        self.sum = runtime_context.get_reducing_state(SUM)

    def process_element(self, value: Any, ctx: Any) -> Any:
        key, number = value
        self.count.update(number)
        self.seen.add(number)
        self.names.put(number, key)
        self.sum.add(number)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        found: list[Any] = []

        def forget(key: Any, state: Any) -> None:
            found.append(("count", key, state.value()))
            state.clear()

        ctx.apply_to_keyed_state(SEEN, lambda key, state: found.append((key, list(state.get()))))
        ctx.apply_to_keyed_state(NAMES, lambda key, state: found.append((key, len(state.keys()))))
        ctx.apply_to_keyed_state(SUM, lambda key, state: found.append((key, state.get())))
        ctx.apply_to_keyed_state(COUNT, forget)
        yield found


def test_the_broadcast_side_can_visit_the_state_of_every_key() -> None:
    operator = KeyedBroadcastProcessOperator(Resetting(), lambda value: value[0])
    output = open_operator(operator)
    operator.process(Bundle([(["a"], 1), (["a"], 2), ("b", 3)]), 0)
    operator.process(Bundle(["now", "again"]), 1)
    lists = [(["a"], [1, 2]), ("b", [3]), (["a"], 2), ("b", 1), (["a"], 3), ("b", 3)]
    assert output.records == [[*lists, ("count", ["a"], 2), ("count", "b", 3)], lists]
    operator.close()


def test_after_a_visit_that_failed_there_is_no_key() -> None:
    class Failing(Resetting):
        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            with pytest.raises(ZeroDivisionError):
                ctx.apply_to_keyed_state(COUNT, lambda key, state: 1 / 0)
            self.count.value()

    operator = KeyedBroadcastProcessOperator(Failing(), lambda value: value[0])
    open_operator(operator)
    operator.process(Bundle([("a", 1)]), 0)
    with pytest.raises(RuntimeError, match="no current key here"):
        operator.process(Bundle(["now"]), 1)
    operator.close()


def test_without_keys_there_is_no_keyed_state() -> None:
    operator = BroadcastProcessOperator(Reminder())
    with pytest.raises(RuntimeError, match="only accessible by functions executed on a KeyedStre"):
        open_operator(operator)
    operator.close()


def test_in_a_batch_the_timers_of_a_key_fire_at_its_end_with_the_last_watermark() -> None:
    operator = KeyedBroadcastProcessOperator(Reminder(), lambda value: value)
    output = open_operator(operator)
    operator.process(Bundle(["hello"]), 1)
    for key in ("a", "b"):
        operator.process(Bundle([key]), 0)
        operator.key_ended()
    last, times = MAX_WATERMARK_MS, [(MIN_WATERMARK_MS + 10, True), (NOW_MS + 1, False)]
    assert output.records == [
        ("hello", key, 1, time, in_event_time, last)
        for key in ("a", "b")
        for time, in_event_time in times
    ]
    operator.close()
