"""The keyed context: one cursor for state and timers, closed in the end; and its keys."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import partial
from operator import is_
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.row import Row
from headgate.api.types.types import Types
from headgate.base.elements import Bundle
from headgate.base.errors import PathUnusable, StateChanged, UserFunctionFailed
from headgate.core.chain import keyed_context
from headgate.core.chain.keyed_context import KeyedContext, KeySelection
from headgate.core.operators.interval_join import Interval, IntervalJoinOperator
from headgate.core.operators.one_input import KeyedProcessOperator, MapOperator
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.two_inputs import CoMapOperator
from headgate.core.state.backend import StateSpec
from headgate.core.state.keys import Frozen, freeze
from headgate.core.state.memory import MemoryBackend, MemoryBackends
from headgate.core.window.operator import WindowOperator
from headgate.core.window.spec import WindowCall
from headgate.functions.assigners import TumblingEventTimeWindows
from headgate.functions.context import TimeDomain
from headgate.functions.state import StateTtlConfig, ValueStateDescriptor
from headgate.functions.time import Time
from tests.core.chain.kit import NOW_MS, HandClock, open_operator
from tests.core.chain.restore_kit import OperatorTasks, Send, StoredState
from tests.core.window.kit import plan


def test_state_and_timers_stand_at_the_same_key() -> None:
    fired = []
    clock = HandClock()

    def fire(time_ms: int, domain: TimeDomain) -> None:
        fired.append((time_ms, state.value()))

    keyed = KeyedContext(clock.context(), fire, lambda: fired.append((0, "round")))
    state = keyed.opener.open(ValueStateDescriptor("last"))
    for key in ("a", "b"):
        keyed.cursor.key = key
        state.update(key * 2)  # type: ignore[attr-defined]
        keyed.timers.register_event_time_timer(5)
    keyed.timers.register_processing_time_timer(NOW_MS + 1)
    keyed.timers.watermark_advanced(9)
    assert sorted(fired) == [(5, "aa"), (5, "bb")]
    clock.move_to(NOW_MS + 1)
    assert fired[2:] == [(NOW_MS + 1, "bb"), (0, "round")]
    keyed.close()
    keyed.close()


class Expiring:
    """A function of every kind with a state that is cleaned up for every record, by one entry."""

    def open(self, runtime_context: Any) -> None:
        ttl = StateTtlConfig.new_builder(Time.milliseconds(10)).cleanup_incrementally(1, True)
        descriptor = ValueStateDescriptor("expiring")
        descriptor.enable_time_to_live(ttl.build())
        self.state = runtime_context.get_state(descriptor)

    def map(self, value: Any) -> Any:
        return value

    def reduce(self, first: Any, second: Any) -> Any:
        return second

    def process_element(self, *arguments: Any) -> Any:
        return []

    process = map1 = map2 = process_element


EXPIRING_OPERATORS: dict[str, Callable[[Any], Any]] = {
    "map": lambda function: MapOperator(function, str),
    "process": lambda function: KeyedProcessOperator(function, str),
    "two inputs": lambda function: CoMapOperator(function, (str, str)),
    "join": lambda function: IntervalJoinOperator(function, str, str, Interval(0, 1)),
    "reduce": lambda function: ReduceOperator(function, str, False),
    "windows": lambda function: WindowOperator(
        plan(TumblingEventTimeWindows(10), function=WindowCall("process", function), key_of=str)
    ),
}


@pytest.mark.parametrize("make", EXPIRING_OPERATORS.values(), ids=EXPIRING_OPERATORS)
def test_state_is_cleaned_up_for_every_record_of_a_bundle(make: Callable[[Any], Any]) -> None:
    clock, function = HandClock(), Expiring()
    operator = make(function)
    open_operator(operator, within=clock.context())
    keyed = operator._keyed
    for key in range(10):
        keyed.cursor.key = key
        function.state.update(key)
    clock.move_to(NOW_MS + 10)
    held = partial(keyed.backend.places, StateSpec("expiring", "value"))
    for records, left in ([1], 9), ([2, 3, 4], 6), ([*range(20)], 0):
        operator.process(Bundle(records, [5] * len(records)), 0)
        assert len([*held()]) == left
    operator.close()


def test_a_closed_room_fires_no_timers() -> None:
    clock = HandClock()
    keyed = KeyedContext(clock.context())
    keyed.cursor.key = "a"
    keyed.timers.register_processing_time_timer(NOW_MS + 1)
    keyed.close()
    clock.move_to(NOW_MS + 1)


def test_an_operator_that_said_nothing_about_timers_has_none() -> None:
    keyed = KeyedContext(HandClock().context())
    keyed.cursor.key = "a"
    keyed.timers.register_event_time_timer(1)
    with pytest.raises(AssertionError, match="registers none"):
        keyed.timers.watermark_advanced(1)
    keyed.close()


def test_restored_timers_of_processing_time_are_awaited() -> None:
    class Restored(MemoryBackends):
        def keyed(self, operator: str, groups: range, max_parallelism: int) -> MemoryBackend:
            backend = super().keyed(operator, groups, max_parallelism)
            backend.processing_timers.register(NOW_MS + 5, "k")
            return backend

    clock = HandClock()
    fired: list[int] = []
    within = replace(clock.context(), backends=Restored())
    keyed = KeyedContext(within, lambda time_ms, domain: fired.append(time_ms))
    clock.move_to(NOW_MS + 5)
    assert fired == [NOW_MS + 5]
    keyed.close()


def test_the_type_of_keys_may_become_wider_and_nothing_else() -> None:
    def tasks_of(key_type: object, states: list[StoredState] | None = None) -> OperatorTasks:
        operator = partial(ReduceOperator, max, identity, False)
        return OperatorTasks(operator, (identity,), states=states, types=(key_type, None))

    old = tasks_of(Types.INT())
    old.apply(Send([(1, None)]))
    states = old.stored_states()
    old.close()
    for same in (Types.INT(), Types.LONG(), None):
        tasks_of(same, states).close()
    for other in (Types.STRING(), Types.DOUBLE()):
        with pytest.raises(StateChanged, match=r"'keys' of operator 'op' was key of Types.INT\(\)"):
            tasks_of(other, states)
    undeclared = tasks_of(None)
    states = undeclared.stored_states()
    undeclared.close()
    tasks_of(Types.STRING(), states).close()


@pytest.mark.parametrize(("has", "fits"), [(Types.LONG(), True), (Types.STRING(), False)])
def test_what_is_reduced_keeps_its_type(has: object, fits: bool) -> None:
    def tasks_of(record_type: object, states: list[StoredState] | None = None) -> OperatorTasks:
        operator = partial(ReduceOperator, max, identity, False)
        return OperatorTasks(operator, (identity,), states=states, types=(None, record_type))

    old = tasks_of(Types.INT())
    old.apply(Send([(1, None)]))
    states = old.stored_states()
    old.close()
    if fits:
        tasks_of(has, states).close()
    else:
        with pytest.raises(StateChanged, match="'reduced so far'"):
            tasks_of(has, states)


def identity(record: object) -> object:
    return record


keys = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.booleans() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


@given(st.lists(keys, max_size=12))
def test_every_key_is_hashable_and_equal_keys_stay_equal(found: list[Any]) -> None:
    chosen = KeySelection(lambda record: record, "count").keys(found)
    assert len(dict.fromkeys(chosen)) <= len(found)
    for key, seen in zip(found, chosen, strict=True):
        assert (seen.key if isinstance(seen, Frozen) else seen) is key
        for other, other_seen in zip(found, chosen, strict=True):
            if key == other and type(key) is type(other):
                assert seen == other_seen


def taken(found: list[Any]) -> list[Any]:
    return KeySelection(identity, "count").keys(found)


def test_plain_keys_are_taken_as_they_are() -> None:
    found = ["a", 1, None, b"c", 2.5, True]
    assert all(map(is_, taken(found), found))
    tuples = [("a", 1), ("b", 2.5), ()]
    assert all(map(is_, taken(tuples), tuples))


def test_keys_of_rare_kinds_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(keyed_context, "seen", lambda key: looked.append(key) or freeze(key))
    selection = KeySelection(identity, "count")
    found = [date(2024, 1, day) for day in (1, 2, 1)]
    assert selection.keys(found) == found
    assert selection.keys(found) == found
    assert selection.see(found[0]) == (found[0], None)
    assert looked == [date(2024, 1, 1), date(2024, 1, 2)]


def test_the_memory_for_keys_of_rare_kinds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_context, "KNOWN_KEYS", 3)
    selection = KeySelection(identity, "count")
    for day in range(1, 20):
        assert selection.keys([date(2024, 1, day)]) == [date(2024, 1, day)]
        assert len(selection._known) <= 3


@dataclass(frozen=True)
class Place:
    x: float


NAN_KEYS: list[Callable[[Any], Any]] = [
    lambda nan: nan,
    lambda nan: ("a", nan),
    lambda nan: ("a", (nan, 1)),
    lambda nan: Named("a", nan),
    lambda nan: frozenset({nan, 1}),
    lambda nan: Place(nan),
    lambda nan: (1, Place(nan)),
    lambda nan: [nan],
    lambda nan: Row(nan, 1),
]
Named = namedtuple("Named", "name value")


@pytest.mark.parametrize("make", NAN_KEYS)
@pytest.mark.parametrize("kind", [float, np.float64, np.float32, Decimal, complex])
def test_keys_with_nan_are_one_key_whatever_else_is_in_the_bundle(
    make: Callable[[Any], Any], kind: Callable[[str], Any]
) -> None:
    key = make(kind("nan"))
    (alone,) = taken([key])
    selection = KeySelection(identity, "count")
    for others in (
        [],
        ["a"],
        [1.5],
        [("a", 1)],
        [("a", 1.5)],
        [["a"]],
        [date(2024, 1, 1)],
        [Plain()],
    ):
        *_, found = selection.keys([*others, make(kind("nan"))])
        assert {alone: 1}[found] == 1
    assert {alone: 1}[selection.see(make(kind("-nan" if kind is float else "nan")))[0]] == 1
    assert alone not in {*taken([make(1.5)])}


@pytest.mark.parametrize(
    ("key_type", "good", "bad"),
    [
        (Types.STRING(), ["a", None, "b"], 7),
        (Types.INT(), [1, -1, None, np.int64(5)], 2**40),
        (Types.TUPLE([Types.STRING(), Types.INT()]), [("a", 1), None, ("b", 2)], ("a", "b")),
        (Types.TUPLE([Types.STRING(), Types.INT()]), [("a", 1), ("b", 2)], ("a", 1.5)),
        (Types.TUPLE([Types.STRING(), Types.BOOLEAN()]), [("a", True)], ("a", 1)),
        (Types.SQL_DATE(), [date(2024, 1, 1), None], "2024-01-01"),
        (Types.LIST(Types.INT()), [[1], None, [2, 3]], ["a"]),
    ],
    ids=repr,
)
def test_keys_are_checked_and_stay_as_they_are(key_type: Any, good: list[Any], bad: Any) -> None:
    selection = KeySelection(identity, "count", key_type=key_type)
    for _ in range(2):  # also those that it remembers
        found = [key.key if isinstance(key, Frozen) else key for key in selection.keys(good)]
        assert all(map(is_, found, good))
        for ways in (lambda keys: selection.keys([*good, *keys]), selection.keys):
            with pytest.raises(UserFunctionFailed, match="'count'.* the key .* declared type") as e:
                ways([bad])
            assert repr(key_type) in str(e.value) and repr(bad) in str(e.value)
        selection.records_come(3, lambda: good)
        with pytest.raises(UserFunctionFailed, match="declared type"):
            selection.records_come(1, lambda: [bad])


class Plain:
    """Says nothing about equality."""


def test_objects_without_equality_go_by_what_they_hold() -> None:
    for first, second in [(Plain(), Plain()), ((1, Plain()), (1, Plain()))]:
        chosen, again = taken([first, second])
        assert chosen == again
        assert isinstance(chosen, Frozen)


@pytest.mark.parametrize("error", [KeyError("name"), StopIteration(), SystemExit(3)])
def test_a_selector_that_fails_is_told_with_the_operator_on_the_keyed_stream(
    error: BaseException,
) -> None:
    def fail(record: object) -> None:
        raise error

    with pytest.raises(UserFunctionFailed, match="'count' failed when the key of a record was"):
        KeySelection(fail, "count").keys([1])


def test_a_key_that_cannot_be_frozen_is_told_too() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __reduce__(self) -> str:
            raise ValueError("not to be pickled")

    with pytest.raises(UserFunctionFailed, match="not to be pickled"):
        KeySelection(lambda record: Odd(), "count").keys([1])


def test_an_error_of_headgate_itself_stays_as_it_is() -> None:
    def fail(record: object) -> None:
        raise PathUnusable("keys.csv", "is missing")

    with pytest.raises(PathUnusable):
        KeySelection(fail, "count").keys([1])
