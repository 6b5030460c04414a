"""Time to live on any backend; `TtlConformance` is mixed into a class with a fixture `make`."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.core.chain.keyed_context import KeySelection
from headgate.core.state.backend import StateSpec
from headgate.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from headgate.functions.time import Time
from tests.core.state.conformance import Make
from tests.core.state.kit import Lab, Sum

TTL_MS = 100
Building = Callable[[Any], Any]


def plain(builder: Any) -> Any:
    return builder.disable_cleanup_in_background()


def on_read(builder: Any) -> Any:
    return plain(builder).update_ttl_on_read_and_write()


def showing(builder: Any) -> Any:
    return plain(builder).return_expired_if_not_cleaned_up()


def living(descriptor: StateDescriptor, building: Building = plain) -> StateDescriptor:
    """The descriptor with a time to live."""
    builder = StateTtlConfig.new_builder(Time.milliseconds(TTL_MS))
    descriptor.enable_time_to_live(building(builder).build())
    return descriptor


def held_places(lab: Lab, name: str, kind: str) -> int:
    """How many keys the backend still holds something for."""
    spec = StateSpec(name, kind, lab.namespaced, has_ttl=True)
    return len(list(lab.backend.places(spec)))


class TtlConformance:
    """Tests for a class with a fixture `make`."""

    @pytest.fixture
    def lab(self, make: Make) -> Any:
        lab = Lab(make)
        lab.at("k")
        yield lab
        lab.backend.close()

    def test_a_value_expires_to_the_millisecond(self, lab: Lab) -> None:
        state = lab.open(living(ValueStateDescriptor("v")))
        state.update([1])
        lab.now_ms += TTL_MS - 1
        assert state.value() == [1]
        lab.now_ms += 1
        assert state.value() is None
        state.update([2])
        assert state.value() == [2]
        state.update(None)
        assert state.value() is None

    def test_writing_starts_the_time_anew_and_reading_does_not(self, lab: Lab) -> None:
        state = lab.open(living(ValueStateDescriptor("v")))
        state.update(1)
        lab.now_ms += 60
        state.update(2)
        lab.now_ms += 60
        assert state.value() == 2
        lab.now_ms += 40
        assert state.value() is None

    def test_reading_starts_the_time_anew_if_it_is_said_so(self, lab: Lab) -> None:
        value = lab.open(living(ValueStateDescriptor("v"), on_read))
        elements = lab.open(living(ListStateDescriptor("l"), on_read))
        items = lab.open(living(MapStateDescriptor("m"), on_read))
        value.update(1)
        elements.add(1)
        items.put_all({"read": 1, "asked": 2, "left": 3})
        for _ in range(5):
            lab.now_ms += 60
            assert value.value() == 1 and list(elements.get()) == [1]
            assert items.get("read") == 1 and "asked" in items
        assert items.get("left") is None
        lab.now_ms += 60
        assert dict(items.items()) == {"read": 1, "asked": 2}
        lab.now_ms += 60
        assert dict(items.items()) == {"read": 1, "asked": 2}
        lab.now_ms += TTL_MS
        assert value.value() is None and list(elements.get()) == [] and items.is_empty()

    def test_elements_expire_each_for_itself(self, lab: Lab) -> None:
        state = lab.open(living(ListStateDescriptor("l")))
        state.add("a")
        lab.now_ms += 60
        state.add_all(["b", "c"])
        lab.now_ms += 60
        assert list(state.get()) == ["b", "c"]
        state.update(["d"])
        lab.now_ms += 60
        state.add("e")
        assert list(state.get()) == ["d", "e"]
        lab.now_ms += 40
        assert list(state.get()) == ["e"]
        state.clear()
        assert list(state.get()) == []

    def test_items_expire_each_for_itself(self, lab: Lab) -> None:
        state = lab.open(living(MapStateDescriptor("m")))
        state.put("a", 1)
        lab.now_ms += 60
        state.put_all({"b": 2, "c": None})
        assert dict(state.items()) == {"a": 1, "b": 2, "c": None}
        lab.now_ms += 60
        assert state.get("a") is None and "a" not in state and state["b"] == 2
        assert sorted(state.keys()) == ["b", "c"] and "c" in state
        state.remove("b")
        assert not state.is_empty()
        lab.now_ms += 60
        assert state.is_empty() and list(state.values()) == [] and list(state) == []

    def test_expired_entries_may_be_shown_once(self, lab: Lab) -> None:
        value = lab.open(living(ValueStateDescriptor("v"), showing))
        elements = lab.open(living(ListStateDescriptor("l"), showing))
        items = lab.open(living(MapStateDescriptor("m"), showing))
        value.update(1)
        elements.add(1)
        items.put_all({"x": 1, "y": 2})
        lab.now_ms += TTL_MS
        assert not items.is_empty()
        assert value.value() == 1 and list(elements.get()) == [1] and items.get("x") == 1
        assert items.get("x") is None and dict(items.items()) == {"y": 2}
        assert value.value() is None and list(elements.get()) == [] and items.is_empty()

    def test_folded_state_starts_anew_when_it_has_expired(self, lab: Lab) -> None:
        reducing = lab.open(
            living(ReducingStateDescriptor("r", lambda value, other: value + other))
        )
        aggregating = lab.open(living(AggregatingStateDescriptor("a", Sum())))
        for _ in range(3):
            lab.now_ms += 60
            reducing.add(1)
            aggregating.add(1)
        assert reducing.get() == 3 and aggregating.get() == 3
        lab.now_ms += TTL_MS
        assert reducing.get() is None and aggregating.get() is None
        reducing.add(5)
        aggregating.add(5)
        assert reducing.get() == 5 and aggregating.get() == 5

    def test_reading_an_expired_entry_removes_it(self, lab: Lab) -> None:
        value = lab.open(living(ValueStateDescriptor("v")))
        elements = lab.open(living(ListStateDescriptor("l")))
        items = lab.open(living(MapStateDescriptor("m")))
        value.update(1)
        elements.add(1)
        items.put("x", 1)
        lab.now_ms += TTL_MS
        for name, kind in (("v", "value"), ("l", "list"), ("m", "map")):
            assert held_places(lab, name, kind) == 1
        value.value()
        elements.get()
        items.get("x")
        for name, kind in (("v", "value"), ("l", "list"), ("m", "map")):
            assert held_places(lab, name, kind) == 0

    @pytest.mark.parametrize(
        ("make_state", "write"),
        [
            (ValueStateDescriptor, lambda state: state.update(1)),
            (ListStateDescriptor, lambda state: state.add(1)),
            (MapStateDescriptor, lambda state: state.put(1, 1)),
        ],
    )
    def test_cleaning_up_incrementally_removes_what_nobody_reads(
        self, lab: Lab, make_state: Any, write: Any
    ) -> None:
        state = lab.open(living(make_state("s"), lambda builder: builder.cleanup_incrementally(3)))
        kind = make_state.kind
        for key in range(30):
            lab.at(key)
            write(state)
        lab.now_ms += 60
        for key in range(20, 30):
            lab.at(key)
            write(state)
        lab.now_ms += 60
        lab.at("busy")
        for _ in range(25):
            write(state)
        assert lab.backend.cursor.key == "busy", "the cursor is put back"
        assert held_places(lab, "s", kind) == 11
        lab.now_ms += TTL_MS
        for _ in range(25):
            write(state)
        assert held_places(lab, "s", kind) == 1

    def test_cleaning_up_is_the_default(self, lab: Lab) -> None:
        state = lab.open(living(ValueStateDescriptor("s"), lambda builder: builder))
        for key in range(30):
            lab.at(key)
            state.update(key)
        lab.now_ms += TTL_MS
        lab.at("busy")
        for _ in range(10):
            state.value()
        assert held_places(lab, "s", "value") == 0

    def test_cleaning_up_leaves_the_namespaces_of_windows_in_place(self, make: Make) -> None:
        lab = Lab(make, namespaced=True)
        state = lab.open(living(ListStateDescriptor("s"), lambda builder: builder))
        for key in range(10):
            for window in ("w1", "w2"):
                lab.at(key, window)
                state.add(window)
        lab.now_ms += 60
        lab.at(3, "w2")
        state.add("later")
        lab.now_ms += 60
        for _ in range(10):
            assert list(state.get()) == ["later"]
        assert held_places(lab, "s", "list") == 1
        assert (lab.backend.cursor.key, lab.backend.cursor.namespace) == (3, "w2")
        lab.backend.close()

    def test_cleaning_up_for_every_record_needs_no_use_of_the_state(self, lab: Lab) -> None:
        state = lab.open(
            living(
                ValueStateDescriptor("s"), lambda builder: builder.cleanup_incrementally(2, True)
            )
        )
        for key in range(20):
            lab.at(key)
            state.update(key)
        lab.now_ms += TTL_MS
        lab.at("k", "w")
        selection = KeySelection(str, "op", lab.backend.sweeps)
        for records, left in ([1], 18), ([2, 3, 4], 12), ([*range(5, 11)], 0), ([11], 0):
            assert selection.keys(records) == [*map(str, records)]
            assert held_places(lab, "s", "value") == left
            assert (lab.backend.cursor.key, lab.backend.cursor.namespace) == ("k", "w")

    def test_a_snapshot_keeps_times_and_may_leave_out_what_expired(self, lab: Lab) -> None:
        def full(builder: Any) -> Any:
            return plain(builder).cleanup_full_snapshot()

        def descriptors(building: Building) -> list[StateDescriptor]:
            return [
                living(ValueStateDescriptor("v"), building),
                living(ListStateDescriptor("l"), building),
                living(MapStateDescriptor("m"), building),
            ]

        value, elements, items = map(lab.open, descriptors(full))
        for key in ("old", "new"):
            lab.at(key)
            value.update(key)
            elements.add(key)
            items.put(key, 1)
            lab.now_ms += 50  # the old ones are as old as they may become, to the millisecond
        elements.add("newest")
        items.put("newest", 2)
        restored = lab.restored()
        value, elements, items = map(restored.open, descriptors(showing))
        restored.at("old")
        assert value.value() is None and list(elements.get()) == [] and items.is_empty()
        restored.at("new")
        assert value.value() == "new" and list(elements.get()) == ["new", "newest"]
        restored.now_ms += 60
        assert value.value() == "new", "shown once, though it has expired"
        assert value.value() is None
        assert dict(items.items()) == {"new": 1, "newest": 2}
        assert dict(items.items()) == {"newest": 2}
        restored.backend.close()

    def test_state_gets_a_time_to_live_and_loses_it_again(self, lab: Lab) -> None:
        plain = ValueStateDescriptor("v"), ListStateDescriptor("l"), MapStateDescriptor("m")
        value, elements, items = map(lab.open, plain)
        value.update(1)
        elements.update([1, 2])
        items.put("a", 1)
        with_ttl = lab.restored()
        with_ttl.now_ms += 1000  # longer than they live: it counts from now on
        value, elements, items = map(with_ttl.open, map(living, plain))
        with_ttl.at("k")
        assert value.value() == 1 and list(elements.get()) == [1, 2] and items.get("a") == 1
        without = with_ttl.restored()
        without.now_ms += 1000
        value, elements, items = map(
            without.open,
            (ValueStateDescriptor("v"), ListStateDescriptor("l"), MapStateDescriptor("m")),
        )
        without.at("k")
        assert value.value() == 1 and list(elements.get()) == [1, 2] and items.get("a") == 1
        without.backend.close()
        with_ttl.backend.close()
