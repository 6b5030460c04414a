"""What every state backend must do. `BackendConformance` is mixed into a test class that has a
fixture `make`; `machine` makes a stateful test that compares a backend with plain dictionaries.

A backend is made by `make(groups, max_parallelism)`.
"""

import copy
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.base.errors import StateBroken
from headgate.core.state.backend import KeyedBackend, StateSpec
from headgate.core.state.cursor import seen
from headgate.core.state.keys import groups_of, key_group
from headgate.core.state.memory import MemoryBackend

Make = Callable[[range, int], KeyedBackend]

GROUPS = 16
KEYS: list[Any] = ["a", "b", 7, -1, None, 1.5, b"k", ("t", 2), [1, 2], {"x": [1]}, True]
SPACES: list[Any] = [("w", 0, 10), ("w", 10, 20), "other"]

VALUE, LIST, MAP = (StateSpec(kind, kind) for kind in ("value", "list", "map"))
WINDOW_VALUE, WINDOW_LIST, WINDOW_MAP = (
    StateSpec(kind, kind, True) for kind in ("value", "list", "map")
)


NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
EQUAL_KEYS: list[list[Any]] = [
    [NOON, NOON.astimezone(timezone(timedelta(hours=1))), NOON.astimezone(ZoneInfo("Asia/Tokyo"))],
    [1, np.True_, np.float32(1), 1 + 0j, Decimal("1.0"), Fraction(1)],
    [b"a", bytearray(b"a")],
    [frozenset({1}), {1.0}],
    [float("nan"), np.float32("nan"), Decimal("nan")],
    [("a", float("nan")), ("a", np.float64("nan"))],
]


def at(backend: KeyedBackend, key: Any, namespace: Any = None) -> None:
    """Set the cursor as an operator does."""
    backend.cursor.key, backend.cursor.namespace = seen(key), namespace


def written(backend: KeyedBackend) -> dict[int, bytes]:
    """The groups of a snapshot that is taken and closed at once."""
    snapshot = backend.snapshot()
    try:
        return dict(snapshot.groups())
    finally:
        snapshot.close()


def timers_of(queue: Any) -> set[tuple[int, Any, Any]]:
    return set(queue.items())


class BackendConformance:
    """Tests for a class with a fixture `make`."""

    @pytest.fixture
    def backend(self, make: Make) -> Iterator[KeyedBackend]:
        backend = make(range(GROUPS), GROUPS)
        yield backend
        backend.close()

    # Values, lists and maps

    def test_what_was_never_set_is_none_or_empty(self, backend: KeyedBackend) -> None:
        at(backend, "a")
        assert backend.value_state(VALUE).value() is None
        assert list(backend.list_state(LIST).get()) == []
        state = backend.map_state(MAP)
        assert state.get("x") is None and state["x"] is None
        assert not state.contains("x") and "x" not in state
        assert state.is_empty() and list(state.items()) == []
        assert list(state) == [] and list(state.values()) == []

    @pytest.mark.parametrize(
        "value", [0, "", False, [], {}, (), [None], {"a": [1, (2,)]}, b"", 1.5]
    )
    def test_a_value_comes_back_as_it_was_put(self, backend: KeyedBackend, value: Any) -> None:
        state = backend.value_state(VALUE)
        at(backend, "a")
        state.update(value)
        assert state.value() == value and type(state.value()) is type(value)
        state.update(None)
        assert state.value() is None

    @pytest.mark.parametrize("keys", EQUAL_KEYS)
    @pytest.mark.parametrize("restored", [False, True])
    def test_equal_keys_have_one_state_also_after_a_restore(
        self, make: Make, keys: list[Any], restored: bool
    ) -> None:
        for key, other in product(keys, keys):
            backend = make(range(GROUPS), GROUPS)
            at(backend, key)
            backend.value_state(VALUE).update(1)
            backend.list_state(LIST).add(1)
            if restored:
                group, old = key_group(other, GROUPS), backend
                backend = make(range(group, group + 1), GROUPS)
                backend.restore(written(old).items())
                old.close()
            at(backend, other)
            assert backend.value_state(VALUE).value() == 1
            backend.list_state(LIST).add(2)
            at(backend, key)
            assert list(backend.list_state(LIST).get()) == [1, 2]
            backend.close()

    def test_a_list_keeps_its_order_and_takes_none(self, backend: KeyedBackend) -> None:
        state = backend.list_state(LIST)
        at(backend, "a")
        state.add(3)
        state.add_all([1, None])
        state.add([2])
        assert list(state.get()) == [3, 1, None, [2]]
        state.update([9])
        state.add(8)
        assert list(state.get()) == [9, 8]
        state.update([])
        assert list(state.get()) == []
        state.add_all([])
        assert list(state.get()) == []

    def test_what_a_list_was_made_of_may_be_changed_afterwards(self, backend: KeyedBackend) -> None:
        state = backend.list_state(LIST)
        at(backend, "a")
        given = [1, 2]
        state.update(given)
        given.append(3)
        state.add_all(given)
        given.clear()
        assert list(state.get()) == [1, 2, 1, 2, 3]

    def test_a_map_is_a_dictionary(self, backend: KeyedBackend) -> None:
        state = backend.map_state(MAP)
        at(backend, "a")
        state.put("x", 1)
        state["y"] = [2]
        state.put_all({(1, "t"): None, None: 4})
        assert dict(state.items()) == {"x": 1, "y": [2], (1, "t"): None, None: 4}
        assert set(state.keys()) == {"x", "y", (1, "t"), None} == set(state)
        assert state.contains((1, "t")) and state.get((1, "t")) is None
        del state["x"]
        state.remove("never there")
        assert "x" not in state and not state.is_empty()
        for key in list(state):
            state.remove(key)
        assert state.is_empty()

    def test_a_map_may_be_changed_while_it_is_walked(self, backend: KeyedBackend) -> None:
        state = backend.map_state(MAP)
        at(backend, "a")
        state.put_all({number: number for number in range(20)})
        for key, value in state.items():
            state.remove(key)
            state.put(key + 100, value)
        assert sorted(state.keys()) == [*range(100, 120)]

    def test_a_state_and_that_of_windows_may_have_the_same_name(
        self, backend: KeyedBackend
    ) -> None:
        plain, of_window = backend.value_state(VALUE), backend.value_state(WINDOW_VALUE)
        at(backend, "a", SPACES[0])
        plain.update(1)
        of_window.update(2)
        at(backend, "a", SPACES[1])
        assert plain.value() == 1 and of_window.value() is None

    def test_a_name_is_one_kind_of_state(self, backend: KeyedBackend) -> None:
        backend.value_state(StateSpec("s", "value"))
        with pytest.raises(ValueError, match="'s' is there as a value"):
            backend.list_state(StateSpec("s", "list"))

    def test_forgetting_a_key_leaves_the_others(self, backend: KeyedBackend) -> None:
        value, elements, items = self.all_three(backend)
        windowed = backend.value_state(WINDOW_VALUE)
        for key in KEYS:
            at(backend, key)
            value.update(1)
            elements.add(1)
            items.put(1, 1)
            backend.event_timers.register(5, seen(key), None)
            backend.processing_timers.register(5, seen(key), SPACES[0])
            at(backend, key, SPACES[0])
            windowed.update(1)
        at(backend, [1, 2])
        backend.forget_key()
        at(backend, [1, 2], SPACES[0])
        assert value.value() is None and list(elements.get()) == [] and items.is_empty()
        assert windowed.value() is None
        others = {seen(key) for key in KEYS if key != [1, 2]}
        assert {key for _, key, _ in backend.event_timers.items()} == others
        assert {key for _, key, _ in backend.processing_timers.items()} == others
        at(backend, "a", SPACES[0])
        assert value.value() == 1 and windowed.value() == 1

    def test_places_are_where_a_state_holds_something(self, backend: KeyedBackend) -> None:
        value, windowed = backend.value_state(VALUE), backend.value_state(WINDOW_VALUE)
        elements, items = backend.list_state(LIST), backend.map_state(MAP)
        for key in KEYS:
            at(backend, key)
            value.update(1)
            elements.add_all([1, 2])
            items.put_all({1: 1, 2: 2})
        at(backend, "a")
        value.clear()
        elements.update([])
        items.remove(1)
        items.remove(2)
        at(backend, "a", SPACES[0])
        windowed.update(1)
        left = {(None, seen(key)) for key in KEYS if key != "a"}
        for spec in (VALUE, LIST, MAP):
            places = list(backend.places(spec))
            assert len(places) == len(set(places)) and set(places) == left
        assert list(backend.places(WINDOW_VALUE)) == [(SPACES[0], "a")]

    def test_entries_may_go_while_places_are_walked(self, backend: KeyedBackend) -> None:
        state = backend.value_state(VALUE)
        for key in range(50):
            at(backend, key)
            state.update(key)
        for namespace, key in backend.places(VALUE):
            at(backend, key, namespace)
            state.clear()
        assert list(backend.places(VALUE)) == []

    def test_direct_entries_are_those_of_the_state(self, backend: KeyedBackend) -> None:
        plain, windowed = backend.value_state(VALUE), backend.value_state(WINDOW_VALUE)
        spaces = backend.direct(VALUE)
        if spaces is None:
            return
        entries = spaces.view
        at(backend, "a", SPACES[0])
        plain.update(1)
        windowed.update(2)
        assert entries[None] == {"a": 1} and entries[SPACES[0]] == {"a": 2}
        entries[None]["a"] = 3
        assert plain.value() == 3

    # Snapshots

    def test_an_empty_backend_writes_nothing(self, backend: KeyedBackend) -> None:
        self.all_three(backend)
        assert written(backend) == {}

    def test_states_may_be_opened_before_they_are_restored(
        self, backend: KeyedBackend, make: Make
    ) -> None:
        self.fill(backend)
        again = make(range(GROUPS), GROUPS)
        value = again.value_state(VALUE)
        spaces = again.direct(VALUE)
        held = None if spaces is None else spaces.plain.view
        for part in written(backend).items():
            again.restore([part])
        at(again, "a")
        assert value.value() == ["a", 0]
        assert held is None or held["a"] == ["a", 0]
        self.check_filled(again, KEYS)
        again.close()

    @pytest.mark.parametrize("parallelism", [2, 3, 16])
    def test_another_number_of_tasks_shares_the_groups(
        self, backend: KeyedBackend, make: Make, parallelism: int
    ) -> None:
        self.fill(backend)
        groups = written(backend)
        parts: dict[int, bytes] = {}
        for task in range(parallelism):
            owned = groups_of(task, parallelism, GROUPS)
            part = make(owned, GROUPS)
            part.restore(groups.items())
            self.check_filled(part, [key for key in KEYS if key_group(key, GROUPS) in owned])
            mine = written(part)
            assert set(mine) <= set(owned), "a task has taken a group that it does not own"
            parts |= mine
            part.close()
        together = make(range(GROUPS), GROUPS)
        together.restore(parts.items())
        self.check_filled(together, KEYS)
        together.close()

    def test_a_snapshot_that_nobody_reads_is_closed(self, backend: KeyedBackend) -> None:
        self.fill(backend)
        backend.snapshot().close()
        half = backend.snapshot()
        next(half.groups())
        half.close()
        self.check_filled(backend, KEYS)

    def test_what_one_backend_wrote_another_reads(self, backend: KeyedBackend) -> None:
        self.fill(backend)
        memory = MemoryBackend(range(GROUPS), GROUPS)
        memory.restore(written(backend).items())
        self.check_filled(memory, KEYS)
        at(backend, "a")
        backend.forget_key()
        backend.restore(written(memory).items())
        self.check_filled(backend, KEYS)

    def test_broken_bytes_are_refused(self, backend: KeyedBackend, make: Make) -> None:
        self.fill(backend)
        (group, data), *_ = written(backend).items()
        again = make(range(GROUPS), GROUPS)
        for broken in (b"", data[:-1], data[:5], b"x" + data[1:], data[:-3] + b"abc"):
            with pytest.raises(StateBroken, match=f"key group {group}"):
                again.restore([(group, broken)])
        again.close()

    def test_another_maximum_parallelism_is_refused(
        self, backend: KeyedBackend, make: Make
    ) -> None:
        self.fill(backend)
        again = make(range(GROUPS * 2), GROUPS * 2)
        with pytest.raises(StateBroken, match="maximum parallelism of 16, the job has 32"):
            again.restore(written(backend).items())
        again.close()

    def test_a_restored_state_keeps_its_kind(self, backend: KeyedBackend, make: Make) -> None:
        self.fill(backend)
        groups = written(backend)
        again = make(range(GROUPS), GROUPS)
        again.restore(groups.items())
        with pytest.raises(ValueError, match="'value' is there as a value"):
            again.map_state(StateSpec("value", "map"))
        again.close()
        other = make(range(GROUPS), GROUPS)
        other.map_state(StateSpec("value", "map"))
        with pytest.raises(StateBroken, match="'value' is there as a map"):
            other.restore(groups.items())
        other.close()

    def test_a_sieve_keeps_expired_entries_out_of_snapshots(
        self, backend: KeyedBackend, make: Make
    ) -> None:
        def sieve() -> Callable[[Any], Any]:
            return lambda number: number if number > 5 else None

        state = backend.value_state(StateSpec("s", "value", sieve=sieve))
        for number in range(10):
            at(backend, number)
            state.update(number)
        again = make(range(GROUPS), GROUPS)
        again.restore(written(backend).items())
        left = again.value_state(StateSpec("s", "value"))
        found = []
        for number in range(10):
            at(again, number)
            found.append(left.value())
            at(backend, number)
            assert state.value() == number
        assert found == [None] * 6 + [6, 7, 8, 9]
        again.close()

    def test_closing_twice_is_harmless(self, make: Make) -> None:
        backend = make(range(GROUPS), GROUPS)
        self.fill(backend)
        backend.close()
        backend.close()

    # What the tests above are made of

    def all_three(self, backend: KeyedBackend) -> tuple[Any, Any, Any]:
        return backend.value_state(VALUE), backend.list_state(LIST), backend.map_state(MAP)

    def fill(self, backend: KeyedBackend) -> None:
        value, elements, items = self.all_three(backend)
        windowed = backend.list_state(WINDOW_LIST)
        for number, key in enumerate(KEYS):
            at(backend, key)
            value.update([key, number])
            elements.add_all([{"of": key}, number])
            items.put_all({"own": key, number: None})
            backend.event_timers.register(number, seen(key), None)
            backend.event_timers.register(50, seen(key), SPACES[0])
            backend.processing_timers.register(2, seen(key), SPACES[1])
            for space in SPACES:
                at(backend, key, space)
                windowed.add((space, key))

    def check_filled(self, backend: KeyedBackend, keys: list[Any]) -> None:
        value, elements, items = self.all_three(backend)
        windowed = backend.list_state(WINDOW_LIST)
        numbers = [number for number, key in enumerate(KEYS) if key in keys]
        for number, key in enumerate(KEYS):
            there = number in numbers
            at(backend, key)
            assert value.value() == ([key, number] if there else None)
            assert list(elements.get()) == ([{"of": key}, number] if there else [])
            assert dict(items.items()) == ({"own": key, number: None} if there else {})
            for space in SPACES:
                at(backend, key, space)
                assert list(windowed.get()) == ([(space, key)] if there else [])
        frozen = [seen(KEYS[number]) for number in numbers]
        assert timers_of(backend.event_timers) == {
            *((number, seen(KEYS[number]), None) for number in numbers),
            *((50, key, SPACES[0]) for key in frozen),
        }
        assert timers_of(backend.processing_timers) == {(2, key, SPACES[1]) for key in frozen}


def machine(make: Make, examples: int = 60, steps: int = 30) -> Any:
    """A test case that drives a backend and plain dictionaries side by side."""

    class Driven(BackendMachine):
        def make(self, groups: range, max_parallelism: int) -> KeyedBackend:
            return make(groups, max_parallelism)

    case = Driven.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


keys = st.sampled_from(range(len(KEYS)))
spaces = st.sampled_from(range(len(SPACES)))
values = st.recursive(
    st.integers(-3, 3) | st.text("ab", max_size=2) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab"), inner, max_size=2),
    max_leaves=3,
)
times = st.integers(0, 5)


class BackendMachine(RuleBasedStateMachine):
    """The model: contents by state, namespace and key, and the timers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[tuple[str, int | None, int], Any] = {}
        self.timers: tuple[set[Any], set[Any]] = (set(), set())
        self.taken: list[tuple[Any, Any, Any]] = []
        self.start(self.make(range(GROUPS), GROUPS))

    def make(self, groups: range, max_parallelism: int) -> KeyedBackend:
        raise NotImplementedError

    def start(self, backend: KeyedBackend) -> None:
        self.backend = backend
        self.states: dict[str, Any] = {
            "value": backend.value_state(VALUE),
            "list": backend.list_state(LIST),
            "map": backend.map_state(MAP),
            "value w": backend.value_state(WINDOW_VALUE),
            "list w": backend.list_state(WINDOW_LIST),
            "map w": backend.map_state(WINDOW_MAP),
        }

    def at(self, kind: str, key: int, space: int, windowed: bool) -> tuple[Any, Any]:
        """The state, with the cursor in place, and where the model has its content."""
        at(self.backend, KEYS[key], SPACES[space])
        if windowed:
            return self.states[f"{kind} w"], (kind, space, key)
        return self.states[kind], (kind, None, key)

    @rule(key=keys, space=spaces, windowed=st.booleans(), value=values)
    def set_value(self, key: int, space: int, windowed: bool, value: Any) -> None:
        state, place = self.at("value", key, space, windowed)
        state.update(value)
        self.model[place] = copy.deepcopy(value)

    @rule(key=keys, space=spaces, windowed=st.booleans(), value=values)
    def grow_value(self, key: int, space: int, windowed: bool, value: Any) -> None:
        state, place = self.at("value", key, space, windowed)
        held = state.value()
        held = held if isinstance(held, list) else []
        held.append(value)
        state.update(held)
        self.model[place] = copy.deepcopy(held)

    @rule(key=keys, space=spaces, windowed=st.booleans(), elements=st.lists(values, max_size=3))
    def add_elements(self, key: int, space: int, windowed: bool, elements: list[Any]) -> None:
        state, place = self.at("list", key, space, windowed)
        if len(elements) == 1:
            state.add(elements[0])
        else:
            state.add_all(elements)
        if elements:
            self.model.setdefault(place, []).extend(copy.deepcopy(elements))

    @rule(key=keys, space=spaces, windowed=st.booleans(), elements=st.lists(values, max_size=3))
    def set_elements(self, key: int, space: int, windowed: bool, elements: list[Any]) -> None:
        state, place = self.at("list", key, space, windowed)
        state.update(elements)
        self.model[place] = copy.deepcopy(elements)
        if not elements:
            del self.model[place]

    @rule(key=keys, space=spaces, windowed=st.booleans(), name=times, value=values)
    def put_item(self, key: int, space: int, windowed: bool, name: int, value: Any) -> None:
        state, place = self.at("map", key, space, windowed)
        state.put(name, value)
        self.model.setdefault(place, {})[name] = copy.deepcopy(value)

    @rule(key=keys, space=spaces, windowed=st.booleans(), name=times)
    def remove_item(self, key: int, space: int, windowed: bool, name: int) -> None:
        state, place = self.at("map", key, space, windowed)
        state.remove(name)
        if place in self.model:
            self.model[place].pop(name, None)
            if not self.model[place]:
                del self.model[place]

    @rule(
        key=keys,
        space=spaces,
        windowed=st.booleans(),
        kind=st.sampled_from(["value", "list", "map"]),
    )
    def clear(self, key: int, space: int, windowed: bool, kind: str) -> None:
        state, place = self.at(kind, key, space, windowed)
        state.clear()
        self.model.pop(place, None)

    @rule(key=keys, space=spaces | st.none(), time=times, event=st.booleans())
    def register(self, key: int, space: int | None, time: int, event: bool) -> None:
        queue = self.queues()[event]
        queue.register(time, seen(KEYS[key]), None if space is None else SPACES[space])
        self.timers[event].add((time, key, space))

    @rule(key=keys, space=spaces | st.none(), time=times, event=st.booleans())
    def delete(self, key: int, space: int | None, time: int, event: bool) -> None:
        queue = self.queues()[event]
        queue.delete(time, seen(KEYS[key]), None if space is None else SPACES[space])
        self.timers[event].discard((time, key, space))

    @rule(event=st.booleans(), now=times)
    def fire(self, event: bool, now: int) -> None:
        fired = list(self.queues()[event].due(now))
        due = {timer for timer in self.timers[event] if timer[0] <= now}
        assert [time for time, _, _ in fired] == sorted(time for time, _, _ in due)
        assert set(fired) == self.as_held(due)
        self.timers[event].difference_update(due)

    @rule(key=keys)
    def forget(self, key: int) -> None:
        at(self.backend, KEYS[key])
        self.backend.forget_key()
        self.model = {place: held for place, held in self.model.items() if place[2] != key}
        for timers in self.timers:
            timers.difference_update([timer for timer in timers if timer[1] == key])

    @precondition(lambda self: len(self.taken) < 3)
    @rule()
    def take_snapshot(self) -> None:
        self.taken.append(
            (self.backend.snapshot(), copy.deepcopy(self.model), copy.deepcopy(self.timers))
        )

    @precondition(lambda self: self.taken)
    @rule(which=st.integers(0, 2), parallelism=st.integers(1, 3), recover=st.booleans())
    def write_snapshot(self, which: int, parallelism: int, recover: bool) -> None:
        snapshot, model, timers = self.taken.pop(which % len(self.taken))
        groups = dict(snapshot.groups())
        snapshot.close()
        parts: dict[int, bytes] = {}
        for task in range(parallelism):
            owned = groups_of(task, parallelism, GROUPS)
            part = self.make(owned, GROUPS)
            part.restore(groups.items())
            parts |= written(part)
            part.close()
        again = self.make(range(GROUPS), GROUPS)
        again.restore(parts.items())
        now = self.backend, self.model, self.timers
        self.start(again)
        self.model, self.timers = model, timers
        self.everything_is_as_in_the_model()
        if recover:
            for other, _, _ in self.taken:
                other.close()
            self.taken.clear()
            now[0].close()
        else:
            again.close()
            _, self.model, self.timers = now
            self.start(now[0])

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        for kind in ("value", "list", "map"):
            for windowed in (False, True):
                self.contents_are_as_in_the_model(kind, windowed)
        for queue, timers in zip(self.queues(), self.timers, strict=True):
            assert timers_of(queue) == self.as_held(timers)
            assert len(queue) == len(timers)
            assert queue.next_ms == min((time for time, _, _ in timers), default=None)

    def contents_are_as_in_the_model(self, kind: str, windowed: bool) -> None:
        for key in range(len(KEYS)):
            for space in range(len(SPACES)) if windowed else [0]:
                state, place = self.at(kind, key, space, windowed)
                if kind == "value":
                    assert state.value() == self.model.get(place)
                elif kind == "list":
                    assert list(state.get()) == self.model.get(place, [])
                else:
                    assert dict(state.items()) == self.model.get(place, {})
                    assert state.is_empty() == (place not in self.model)

    def queues(self) -> tuple[Any, Any]:
        return self.backend.processing_timers, self.backend.event_timers

    def as_held(self, timers: set[Any]) -> set[Any]:
        return {
            (time, seen(KEYS[key]), None if space is None else SPACES[space])
            for time, key, space in timers
        }

    def teardown(self) -> None:
        for snapshot, _, _ in self.taken:
            snapshot.close()
        self.backend.close()
