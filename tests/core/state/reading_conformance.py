"""Reading state from outside, on any backend; mixed into a class with a fixture `make`."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.base.inspections import MAX_VALUE_BYTES, StateValue, StateValues
from headgate.core.state.reading import StateReader
from headgate.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tests.core.state.conformance import KEYS, Make, at, written
from tests.core.state.kit import Lab, Sum
from tests.core.state.ttl_conformance import TTL_MS, living, on_read, showing

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["value", "list", "map", "reducing", "aggregating"]),
        st.sampled_from(range(len(KEYS))),
        st.integers(0, 9),
    ),
    max_size=30,
)


def reader_of(lab: Lab) -> StateReader:
    return StateReader(lab.backend, lab.shapes, lab._opener, lambda: lab.now_ms)


def read(lab: Lab, name: str, *keys: Any) -> list[Any]:
    """The values at these keys, as somebody outside gets them; "nothing" where nothing is."""
    found = reader_of(lab).read(name, [pickle.dumps(key) for key in keys])
    assert not found.problem, found.problem
    return [shown(value) for value in found.values]


def shown(value: StateValue) -> Any:
    assert not value.problem, value.problem
    return "nothing" if value.data is None else pickle.loads(value.data)


def problem_of(lab: Lab, name: str, key: Any) -> str:
    found = reader_of(lab).read(name, [pickle.dumps(key)])
    return found.problem or found.values[0].problem


def every_kind() -> dict[str, StateDescriptor]:
    return {
        "value": ValueStateDescriptor("value", None),
        "list": ListStateDescriptor("list", None),
        "map": MapStateDescriptor("map", None, None),
        "reducing": ReducingStateDescriptor("reducing", lambda left, right: left + right, None),
        "aggregating": AggregatingStateDescriptor("aggregating", Sum(), None),
    }


def change(state: Any, kind: str, number: int) -> None:
    match kind:
        case "value":
            state.update(None if number == 0 else [number])
        case "list":
            state.update([]) if number == 0 else state.add(number)
        case "map":
            state.clear() if number == 0 else state.put(number % 3, {"n": number})
        case _:
            state.add(number)


def seen_by_the_function(state: Any, kind: str) -> Any:
    match kind:
        case "value":
            found = state.value()
        case "list":
            found = list(state.get()) or None
        case "map":
            found = dict(state.items()) or None
        case _:
            found = state.get()
    return "nothing" if found is None else found


class ReadingConformance:
    """Tests for a class with a fixture `make`."""

    @settings(max_examples=15, deadline=None, suppress_health_check=CHECKS)
    @given(actions=ACTIONS)
    def test_reading_shows_what_the_function_would_see_and_changes_nothing(
        self, make: Make, actions: list[tuple[str, int, int]]
    ) -> None:
        lab = Lab(make)
        try:
            states = {kind: lab.open(descriptor) for kind, descriptor in every_kind().items()}
            for kind, key, number in actions:
                lab.at(KEYS[key])
                change(states[kind], kind, number)
            before, cursor = written(lab.backend), lab.backend.cursor.key
            found = {kind: read(lab, kind, *copy.deepcopy(KEYS)) for kind in states}
            assert lab.backend.cursor.key is cursor and lab.backend.cursor.namespace is None
            assert written(lab.backend) == before
            for kind, state in states.items():
                for key, value in zip(KEYS, found[kind], strict=True):
                    lab.at(key)
                    assert value == seen_by_the_function(state, kind), (kind, key)
        finally:
            lab.backend.close()

    def test_an_open_snapshot_is_neither_seen_nor_changed(self, make: Make) -> None:
        lab = Lab(make)
        state = lab.open(ListStateDescriptor("list", None))
        lab.at("k")
        state.add(1)
        snapshot = lab.backend.snapshot()
        state.add(2)
        assert read(lab, "list", "k") == [[1, 2]]
        groups = dict(snapshot.groups())
        snapshot.close()
        other = Lab(make)
        other.backend.restore(groups.items())
        at(other.backend, "k")
        assert list(other.open(ListStateDescriptor("list", None)).get()) == [1]
        lab.backend.close()
        other.backend.close()

    def test_restored_state_can_be_read_before_the_function_asks_for_it(self, make: Make) -> None:
        first = Lab(make)
        for kind, descriptor in every_kind().items():
            first.at("k")
            change(first.open(descriptor), kind, 3)
        second = first.restored()
        assert read(second, "value", "k", "other") == [[3], "nothing"]
        assert "its function has not asked for it since" in problem_of(second, "aggregating", "k")
        second.open(every_kind()["aggregating"])
        assert read(second, "aggregating", "k") == [3]
        assert read(second, "list", "k") == [[3]]
        assert read(second, "map", "k") == [{0: {"n": 3}}]
        first.backend.close()
        second.backend.close()

    @pytest.mark.parametrize("building", [living, lambda it: living(it, on_read)])
    def test_what_has_expired_is_gone_and_reading_prolongs_nothing(
        self, make: Make, building: Any
    ) -> None:
        lab = Lab(make)
        states = {kind: lab.open(building(each)) for kind, each in every_kind().items()}
        lab.at("k")
        for kind, state in states.items():
            change(state, kind, 2)
        lab.now_ms += TTL_MS // 2
        change(states["list"], "list", 5)
        change(states["map"], "map", 4)
        before = written(lab.backend)
        assert read(lab, "list", "k") == [[2, 5]] and read(lab, "map", "k")[0].keys() == {1, 2}
        assert read(lab, "reducing", "k") == [2] and read(lab, "aggregating", "k") == [2]
        assert written(lab.backend) == before, "a read counts as no access"
        lab.now_ms += TTL_MS // 2
        assert read(lab, "value", "k") == read(lab, "reducing", "k") == ["nothing"]
        assert read(lab, "list", "k") == [[5]] and read(lab, "map", "k") == [{1: {"n": 4}}]
        lab.backend.close()

    def test_what_the_state_shows_after_its_time_is_shown_outside_too(self, make: Make) -> None:
        lab = Lab(make)
        state = lab.open(living(ValueStateDescriptor("value", None), showing))
        lab.at("k")
        state.update(1)
        lab.now_ms += 2 * TTL_MS
        assert read(lab, "value", "k") == [1] == read(lab, "value", "k"), "nothing is cleaned up"
        lab.backend.close()

    def test_a_result_that_is_none_is_there(self, make: Make) -> None:
        lab = Lab(make)
        state = lab.open(ReducingStateDescriptor("reducing", lambda left, right: None, None))
        lab.at("k")
        state.add(1)
        state.add(2)
        assert read(lab, "reducing", "k", "other") == [None, "nothing"]
        lab.backend.close()

    @pytest.mark.parametrize("kind", ["value", "list", "map"])
    def test_what_is_too_large_is_refused_and_the_rest_is_not(self, make: Make, kind: str) -> None:
        lab = Lab(make)
        state = lab.open(every_kind()[kind])
        for key, size in (("small", 10), ("large", MAX_VALUE_BYTES)):
            lab.at(key)
            value = b"x" * size
            match kind:
                case "value":
                    state.update(value)
                case "list":
                    state.add(value)
                case "map":
                    state.put("x", value)
        assert "takes more than 1,048,576 bytes" in problem_of(lab, kind, "large")
        assert read(lab, kind, "small") != ["nothing"]
        lab.backend.close()

    def test_the_values_of_an_answer_have_a_bound_together(self, make: Make) -> None:
        lab = Lab(make)
        state = lab.open(ValueStateDescriptor("value", None))
        keys = [f"k{number}" for number in range(6)]
        for key in keys:
            lab.at(key)
            state.update(b"x" * (MAX_VALUE_BYTES - 100))
        found = reader_of(lab).read("value", [pickle.dumps(key) for key in keys])
        answered = [value.data is not None for value in found.values]
        assert answered == [True] * 4 + [False] * 2
        assert "ask for it alone" in found.values[-1].problem
        assert read(lab, "value", keys[-1]) != ["nothing"]
        lab.backend.close()

    def test_an_unknown_state_is_refused_with_those_that_there_are(self, make: Make) -> None:
        lab = Lab(make)
        assert reader_of(lab).read("sums", []) == StateValues(
            problem="it has no state 'sums'; it has opened no state by key at all"
        )
        lab.open(ValueStateDescriptor("count", None))
        lab.open(every_kind()["reducing"])
        assert problem_of(lab, "sums", 1) == (
            "it has no state 'sums'; it has 'count' (value), 'reducing' (reducing)"
        )
        lab.backend.close()
