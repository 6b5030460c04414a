"""Calls of value states become reads and writes of dictionaries, where nobody can tell."""

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.api.types.types import Types
from headgate.base.elements import Bundle
from headgate.core.loops.loops import body_of
from headgate.core.loops.state_calls import InlineState, inline_state, state_attributes
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.core.state.cursor import Cursor
from headgate.core.state.memory import NamespacedValue, PlainList, PlainMap, PlainValue
from headgate.core.state.opening import (
    FoldedByAggregate,
    FoldedByReduce,
    TypedList,
    TypedMap,
    TypedValue,
)
from headgate.core.state.ttl import Lifetime, TtlList, TtlMap, TtlValue
from headgate.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headgate.functions.time import Time
from headgate.functions.window_functions import AggregateFunction
from tests.core.chain.kit import INLINING, HandClock, definitions_of, open_operator


class Plain:
    count: Any
    last: Any
    limit = 3

    def process_element(self, value: Any, ctx: Any) -> Any:
        if (self.count.value() or 0) > self.limit:
            self.count.update(self.last.value())
        yield value


class CallsAnotherMethod(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        self.reset()
        yield self.count.value()

    def reset(self) -> None:
        self.count = self.last


class HandsItselfOver(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        setattr(self, "count", self.last)  # noqa: B010
        yield self.count.value()


class AssignsAState(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count = self.last
        yield self.count.value()


class OtherCalls(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update(value, 1)
        yield self.count.value(1), value.count.value()


class HasAProperty(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.count.value(), self.next_one

    @property
    def next_one(self) -> Any:
        self.count = self.last
        return 3


class HasASecondName(Plain):
    def process_element(self, value: Any, ctx: Any) -> Any:
        reset = self.reset
        reset()
        yield self.count.value()

    def reset(self) -> None:
        self.count = self.last


def states_of(function: Plain) -> list[str]:
    call = function.process_element
    body = body_of(call, 2, definitions_of(function))
    assert body is not None
    return state_attributes(call, body)


def test_states_in_attributes_are_found() -> None:
    assert states_of(Plain()) == ["count", "last"]


@pytest.mark.parametrize(
    "function",
    [
        *(CallsAnotherMethod(), HandsItselfOver(), AssignsAState(), OtherCalls()),
        *(HasAProperty(), HasASecondName()),
    ],
)
def test_states_that_may_change_or_are_called_otherwise_are_left(function: Plain) -> None:
    assert states_of(function) == []


def test_a_function_without_an_object_has_no_states() -> None:
    count = Plain()
    call = lambda value, ctx: count.count.value()  # noqa: E731
    body = body_of(call, 2, definitions_of(call))
    assert body is not None and state_attributes(call, body) == []


def is_small(value: Any) -> Any:
    if value > 9:
        raise TypeError("too large")
    return value


def test_states_in_memory_are_inlined_with_their_checks() -> None:
    cursor = Cursor()
    value, items, table = (kind({}, cursor) for kind in (PlainValue, PlainList, PlainMap))
    for state, kind, checks in (
        (value, "value", (None, None)),
        (items, "list", (None, None)),
        (table, "map", (None, None)),
        (TypedValue(value, is_small), "value", (is_small, None)),
        (TypedList(items, is_small), "list", (is_small, None)),
        (TypedMap(table, None, is_small), "map", (is_small, None)),
        (TypedMap(table, is_small, None), "map", (None, is_small)),
    ):
        found = inline_state(state)
        assert found is not None
        inlined, plain = found
        assert (inlined.kind, (inlined.check, inlined.check_key)) == (kind, checks)
        assert plain is {"value": value, "list": items, "map": table}[kind]


def test_states_elsewhere_are_called() -> None:
    other = NamespacedValue({}, Cursor())
    assert inline_state(other) is None
    assert inline_state(TypedValue(other, is_small)) is None
    assert inline_state(None) is None


def test_folds_and_values_that_expire_are_inlined_with_what_they_stand_on() -> None:
    config = StateTtlConfig.new_builder(Time.seconds(1)).build()
    lifetime = Lifetime(config, lambda: 0)
    value = PlainValue({}, Cursor())
    living: Any = TtlValue(value, lifetime)
    reduced: Any = FoldedByReduce(living, max, is_small)
    aggregated: Any = FoldedByAggregate(value, Joined())
    found = [inline_state(state) for state in (reduced, aggregated, TypedValue(living, is_small))]
    kinds = [
        (state.kind, state.check, state.fold, state.living) for state, _ in filter(None, found)
    ]
    assert kinds[0] == ("reducing", is_small, max, living)
    assert kinds[1] == ("aggregating", None, aggregated.function, None)
    assert kinds[2] == ("value", is_small, None, living)
    assert all(held and held[1] is value for held in found)
    items, table = PlainList({}, Cursor()), PlainMap({}, Cursor())
    lasting, kept = TtlList(items, lifetime), TtlMap(table, lifetime)
    assert inline_state(lasting) == (InlineState("list", living=lasting), items)
    typed = TypedMap(kept, None, is_small)
    assert inline_state(typed) == (
        InlineState("map", is_small, living=kept, is_typed=True),
        table,
    )


class Joined(AggregateFunction[Any, Any, Any]):
    """Collects in a list that it changes in place, until it is too long."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        if accumulator is None or value == 5:
            return None if accumulator else [value]
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator and list(accumulator)

    def merge(self, a: Any, b: Any) -> Any:
        return a + b


def sum_or_none(a: Any, b: Any) -> Any:
    return None if b == 3 else (a or 0) + (b or 0)


NOTED: list[Any] = []


def noted(value: Any) -> Any:
    NOTED.append(value)
    return value


class Everything:
    """Every call that is written out, with and without the value it answers."""

    total: Any
    items: Any
    table: Any
    reduced: Any
    joined: Any

    def process_element(self, value: Any, ctx: Any) -> Any:
        key, number = value
        if number == 3:
            self.total.clear()
            self.table.clear()
            self.items.clear()
        elif self.table.contains(key) and not self.table.contains(number):
            self.table.put(noted(number), noted(self.table.get(key)))
        else:
            self.table.put(key, (self.table.get(key) or 0) + 1)
        if number == 1:
            self.table.remove(noted(key))
            self.reduced.clear()
            self.joined.clear()
        elif number == 0:
            self.items.update([*self.items.get(), number][-2:])
            self.items.add_all(noted([number, 1]))
        elif number == 5:
            self.items.update([])
            self.items.add_all(())
        self.reduced.add(number)
        self.joined.add(noted(number))
        yield self.table.is_empty(), self.table.items(), self.table.values()
        yield self.reduced.get(), self.joined.get(), self.table.keys()
        self.items.add(number)
        self.total.update((self.total.value() or 0) + number)
        yield self.total.update(self.total.value()), self.total.value()
        yield (
            self.table.get(self.table.get(key)),
            self.items.get(),
            sorted(map(str, self.table.keys())),
        )


STATES: dict[str, tuple[Any, Any, Any]] = {
    "untyped": (None, None, None),
    "typed": (Types.LONG(), Types.STRING(), Types.LONG()),
    "short": (Types.SHORT(), Types.SHORT(), Types.BYTE()),
    "any key": (Types.INT(), None, Types.INT()),
    "pickled": (Types.PICKLED_BYTE_ARRAY(), Types.FLOAT(), Types.DOUBLE()),
}

RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", 1, 1.0, True, 7.5, 2**40, None]),
        st.sampled_from([0, 1, 3, 5, 100, 40_000, 2**31, 2**63, 1.5, True]),
    ),
    max_size=12,
)


@pytest.mark.parametrize("types", STATES)
@settings(max_examples=50)
@given(bundles=st.lists(RECORDS, max_size=4), keep_open=st.booleans())
def test_inlined_states_do_what_called_ones_do(
    types: str, bundles: list[list[Any]], keep_open: bool
) -> None:
    value_type, key_type, map_type = STATES[types]

    class Opened(Everything):
        def open(self, context: Any) -> None:
            self.total = context.get_state(ValueStateDescriptor("total", value_type))
            self.items = context.get_list_state(ListStateDescriptor("items", value_type))
            self.table = context.get_map_state(MapStateDescriptor("table", key_type, map_type))
            reducing = ReducingStateDescriptor("reduced", sum_or_none, value_type)
            self.reduced = context.get_reducing_state(reducing)
            joining = AggregatingStateDescriptor("joined", Joined(), None)
            self.joined = context.get_aggregating_state(joining)

    outcomes = []
    for inlined in (False, True):
        INLINING["on"] = inlined
        try:
            function = Opened()
            operator = KeyedProcessOperator(function, lambda record: str(record[0]))
            output = open_operator(operator)
        finally:
            INLINING["on"] = False
        assert operator._loops.is_inlined == inlined
        errors, snapshots = [], []
        NOTED.clear()
        for bundle in bundles:
            try:
                operator.process(Bundle(list(bundle)), 0)
            except TypeError as error:
                errors.append(str(error))
            if keep_open:  # states show guards in front of their tables from now on
                assert operator._keyed is not None
                snapshots.append(operator._keyed.backend.snapshot(None))
        states = function.total, function.items, function.table, function.reduced, function.joined
        held = [inline_state(state) for state in states]
        entries = [repr(sorted(found[1].entries.items())) for found in held if found is not None]
        outcomes.append((repr(output.records), errors, entries, repr(NOTED)))
        for snapshot in snapshots:
            snapshot.close()
    assert len(outcomes[0][2]) == 5
    assert outcomes[0] == outcomes[1]


class Living:
    """Values with a time to live, in a body that calls nothing but states and the context."""

    seen: Any
    last: Any
    table: Any
    items: Any

    def process_element(self, value: Any, ctx: Any) -> Any:
        key, number, _ = value
        if self.table.contains(number):
            yield "there", self.table.get(number), self.table.get(0)
        self.table.put(number, (self.table.get(number) or 0) + number)
        if number == 2:
            self.table.remove(0)
            self.items.clear()
        self.items.add(number)
        yield self.items.get(), self.table.items(), self.table.get(True), self.table.get(2.0)
        if self.seen.value() is None:
            self.seen.update(number)
            yield "new", key, number, ctx.get_current_key()
        elif number == 3:
            self.last.update(value)
        elif number == 4:
            self.seen.clear()
            self.last.update(None)
        yield self.seen.value(), self.last.value()


class LivingLonger(Living):
    """In one that lets time pass between two accesses, and folds."""

    clock: HandClock
    total: Any

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.items.add(noted(value[1]))
        self.table.put(noted(value[1]), noted(value[2]))
        self.clock.move_to(self.clock.now_ms + value[2])
        yield self.table.get(noted(1)), self.table.contains(2), self.items.get()
        before = self.seen.value()
        self.clock.move_to(self.clock.now_ms + value[2])
        yield before, self.seen.value(), self.last.value()
        self.last.update(noted(value[1]) if value[1] else None)
        self.clock.move_to(self.clock.now_ms + value[2])
        self.seen.update(value[1])
        self.total.add(value[1])
        yield self.total.get(), self.last.value()


TTL_MS = 100

BUILDERS: dict[str, Any] = {
    "default": lambda builder: builder,
    "not cleaned up": lambda builder: builder.disable_cleanup_in_background(),
    "read": lambda builder: builder.update_ttl_on_read_and_write(),
    "shown": lambda builder: builder.return_expired_if_not_cleaned_up(),
    "shown, read, seldom cleaned up": lambda builder: (
        builder.return_expired_if_not_cleaned_up()
        .update_ttl_on_read_and_write()
        .cleanup_incrementally(1, False)
    ),
    "cleaned up for records": lambda builder: builder.cleanup_incrementally(2, True),
    "shown, not cleaned up": lambda builder: (
        builder.return_expired_if_not_cleaned_up().disable_cleanup_in_background()
    ),
}

LIVES = st.lists(
    st.tuples(
        st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.integers(0, 5),
                st.sampled_from([0, 0, 1, 50, 99, 100]),
            ),
            max_size=8,
        ),
        st.sampled_from([0, 1, 49, 99, 100, 101, 250]),
    ),
    max_size=6,
)


@pytest.mark.parametrize("building", BUILDERS)
@pytest.mark.parametrize("function_class", [Living, LivingLonger])
@settings(max_examples=40)
@given(lives=LIVES, typed=st.booleans(), keep_open=st.booleans())
def test_values_with_a_time_to_live_expire_in_a_loop_as_they_do_when_called(
    function_class: type[Living], building: str, lives: Any, typed: bool, keep_open: bool
) -> None:
    config = BUILDERS[building](StateTtlConfig.new_builder(Time.milliseconds(TTL_MS))).build()
    outcomes = []
    for inlined in (False, True):
        clock = HandClock()

        class Opened(function_class):  # type: ignore[misc, valid-type]
            clock: HandClock

            def open(self, context: Any) -> None:
                self.clock = clock  # noqa: B023
                kind = Types.LONG() if typed else None
                seen = ValueStateDescriptor("seen", kind)
                last = ValueStateDescriptor("last")
                total = ReducingStateDescriptor("total", sum_or_none, kind)
                items = ListStateDescriptor("items", kind)
                table = MapStateDescriptor("table", kind, kind)
                for descriptor in (seen, last, total, items, table):
                    descriptor.enable_time_to_live(config)
                self.items = context.get_list_state(items)
                self.table = context.get_map_state(table)
                self.seen, self.last = context.get_state(seen), context.get_state(last)
                self.total = context.get_reducing_state(total)

        INLINING["on"] = inlined
        try:
            function = Opened()
            operator = KeyedProcessOperator(function, lambda record: str(record[0]))
            output = open_operator(operator, within=clock.context())
        finally:
            INLINING["on"] = False
        assert operator._loops.is_inlined == inlined
        NOTED.clear()
        seen, snapshots = [], []
        for records, pause_ms in lives:
            with contextlib.suppress(TypeError):
                operator.process(Bundle(list(records)), 0)
            clock.move_to(clock.now_ms + pause_ms)
            states = function.seen, function.last, function.total, function.items, function.table
            held = [inline_state(state) for state in states]
            assert None not in held
            seen.append(
                [repr(sorted(found[1].entries.items())) for found in held if found is not None]
            )
            if keep_open:
                assert operator._keyed is not None
                snapshots.append(operator._keyed.backend.snapshot(None))
        outcomes.append((repr(output.records), seen, repr(NOTED)))
        for snapshot in snapshots:
            snapshot.close()
    assert outcomes[0] == outcomes[1]


def test_the_clock_is_read_once_for_a_bundle_if_nobody_can_tell() -> None:
    for function_class, at_most in ((Living, 2), (LivingLonger, 1000)):
        reads = []

        class Opened(function_class):  # type: ignore[misc, valid-type]
            def open(self, context: Any) -> None:
                self.clock = HandClock()
                config = StateTtlConfig.new_builder(Time.seconds(1)).build()
                for name in ("seen", "last", "total"):
                    descriptor = ValueStateDescriptor(name)
                    descriptor.enable_time_to_live(config)
                    setattr(self, name, context.get_state(descriptor))
                self.items = context.get_list_state(ListStateDescriptor("items"))
                self.table = context.get_map_state(MapStateDescriptor("table"))
                self.total = context.get_reducing_state(ReducingStateDescriptor("sum", max))

        INLINING["on"] = True
        try:
            operator = KeyedProcessOperator(Opened(), lambda record: record[0])
            clock = HandClock()
            within = replace(
                clock.context(),
                now_ms=lambda: reads.append(1) or clock.now_ms,  # noqa: B023
            )
            open_operator(operator, within=within)
        finally:
            INLINING["on"] = False
        operator.process(Bundle([("a", 1, 0)]), 0)  # the sweeper begins to rest
        reads.clear()
        operator.process(Bundle([("a", number % 4, 0) for number in range(50)]), 0)
        assert (len(reads) <= at_most) and (at_most == 2 or len(reads) > 50)
