"""Calls of value states become reads and writes of dictionaries, where nobody can tell."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.types import Types
from headgate.base.elements import Bundle
from headgate.core.inlining.loops import body_of
from headgate.core.inlining.state_calls import inline_state, state_attributes
from headgate.core.operators.process import KeyedProcessOperator
from headgate.core.state.cursor import Cursor
from headgate.core.state.memory_states import NamespacedValue, PlainList, PlainMap, PlainValue
from headgate.core.state.opening import TypedList, TypedMap, TypedValue
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tests.core.chain.kit import INLINING, definitions_of, open_operator


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


def states_of(function: Plain) -> list[str]:
    call = function.process_element
    body = body_of(call, 2, definitions_of(function))
    assert body is not None
    return state_attributes(call, body)


def test_states_in_attributes_are_found() -> None:
    assert states_of(Plain()) == ["count", "last"]


@pytest.mark.parametrize(
    "function", [CallsAnotherMethod(), HandsItselfOver(), AssignsAState(), OtherCalls()]
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
        inlined, entries = found
        assert (inlined.kind, (inlined.check, inlined.check_key)) == (kind, checks)
        assert entries is {"value": value, "list": items, "map": table}[kind].entries


def test_states_elsewhere_are_called() -> None:
    other = NamespacedValue({}, Cursor())
    assert inline_state(other) is None
    assert inline_state(TypedValue(other, is_small)) is None
    assert inline_state(None) is None


NOTED: list[Any] = []


def noted(value: Any) -> Any:
    NOTED.append(value)
    return value


class Everything:
    """Every call that is written out, with and without the value it answers."""

    total: Any
    items: Any
    table: Any

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
        held = [inline_state(state) for state in (function.total, function.items, function.table)]
        entries = [repr(sorted(found[1].items())) for found in held if found is not None]
        outcomes.append((repr(output.records), errors, entries, repr(NOTED)))
        for snapshot in snapshots:
            snapshot.close()
    assert len(outcomes[0][2]) == 3
    assert outcomes[0] == outcomes[1]
