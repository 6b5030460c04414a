"""The cache in front of RocksDB: nothing unwritten is lost, and its weight is bounded."""

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headgate.host.rocksdb.cache import (
    CHUNK,
    ENTRY_BYTES,
    CacheBudget,
    SerializedValue,
    ValueCache,
    cached_form,
    serialized,
    value_of,
    weight_of,
)
from headgate.host.rocksdb.codec import unpack


class Disk:
    """Stands for the database: what was stored, as bytes."""

    def __init__(self) -> None:
        self.data: dict[Hashable, bytes] = {}
        self.loads = 0

    def load(self, place: Hashable) -> Any:
        self.loads += 1
        data = self.data.get(place)
        return None if data is None else cached_form(unpack(data))

    def store(self, entries: list[tuple[Hashable, Any]]) -> None:
        for place, value in entries:
            if value is None:
                self.data.pop(place, None)
            else:
                self.data[place] = serialized(value)


def make(total_bytes: int) -> tuple[ValueCache, Disk]:
    disk = Disk()
    return ValueCache(CacheBudget(total_bytes), disk.load, disk.store), disk


def read(cache: ValueCache, place: Hashable) -> Any:
    found = cache.young.get(place, ...)
    return value_of(cache.fetch(place) if found is ... else found)


VALUES = (
    st.none()
    | st.integers()
    | st.text(max_size=50)
    | st.tuples(st.integers(), st.text(max_size=9))
    | st.lists(st.integers(), max_size=20)
)


@settings(max_examples=60, stateful_step_count=60, deadline=None)
class Model(RuleBasedStateMachine):
    """A cache with room for a few entries against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.disk = make(12 * ENTRY_BYTES)
        self.model: dict[Hashable, Any] = {}

    @rule(place=st.integers(0, 40), value=VALUES)
    def put(self, place: int, value: Any) -> None:
        self.cache.put(place, cached_form(value))
        self.model[place] = value

    @rule(place=st.integers(0, 40))
    def get(self, place: int) -> None:
        assert read(self.cache, place) == self.model.get(place)

    @rule()
    def flush(self) -> None:
        self.cache.flush()
        stored = {place: unpack(data) for place, data in self.disk.data.items()}
        assert stored == {p: v for p, v in self.model.items() if v is not None}

    @rule(place=st.integers(0, 40))
    def drop(self, place: int) -> None:
        self.cache.drop(lambda key: key == place)
        self.disk.data.pop(place, None)
        self.model.pop(place, None)

    @rule()
    def copy(self) -> None:
        unwritten = dict(self.cache.copy().items())
        for place, value in self.model.items():
            if place in unwritten:
                assert value_of(unwritten[place]) == value
            else:
                data = self.disk.data.get(place)
                assert (None if data is None else unpack(data)) == value

    @invariant()
    def weight_is_that_of_the_entries_and_bounded(self) -> None:
        cache = self.cache
        entries = [*cache.young.items(), *cache._old.items()]
        assert len(entries) == len(cache) == len(dict(entries))
        expected = sum(ENTRY_BYTES + weight_of(p) + weight_of(v) for p, v in entries)
        assert cache.weight == expected
        assert cache.weight <= 12 * ENTRY_BYTES
        assert cache.dirty <= dict(entries).keys()


TestModel = Model.TestCase


def test_what_is_read_again_needs_no_database() -> None:
    cache, disk = make(1 << 20)
    for place in range(100):
        assert read(cache, place) is None
    for place in range(100):
        assert read(cache, place) is None
    assert disk.loads == 100


def test_what_is_used_outlives_what_is_not() -> None:
    cache, disk = make(4 * CHUNK * ENTRY_BYTES)
    for place in range(40 * CHUNK):
        cache.put(place, place)
        assert read(cache, 0) == 0
    assert disk.loads < 10, "the entry that every record uses is given up again and again"
    assert len(disk.data) >= 30 * CHUNK


def test_without_room_everything_is_written_at_once() -> None:
    cache, disk = make(0)
    cache.put("a", 1)
    cache.put("a", 2)
    assert len(cache) == 0
    assert {place: unpack(data) for place, data in disk.data.items()} == {"a": 2}
    assert read(cache, "a") == 2
    cache.put("a", None)
    assert not disk.data


def test_long_keys_and_values_weigh_more() -> None:
    cache, disk = make(1 << 20)
    for number in range(100):
        cache.put(f"{number}" * 1000, cached_form("v" * 50_000))
    assert len(cache) <= 20
    assert len(disk.data) >= 80


def test_caches_share_the_budget_and_leave_it_to_the_others() -> None:
    budget, disk = CacheBudget(1000), Disk()
    first = ValueCache(budget, disk.load, disk.store)
    assert budget.share_bytes == 1000
    other = ValueCache(budget, disk.load, disk.store)
    assert budget.share_bytes == 500
    other.close()
    assert budget.share_bytes == 1000
    first.close()
    assert budget.share_bytes == 1000


@pytest.mark.parametrize("value", [1, "a", b"b", None, True, 2.5, (1, "a")])
def test_values_that_nobody_can_change_are_kept_as_they_are(value: Any) -> None:
    assert cached_form(value) is value


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, (1, [2]), bytearray(b"a")])
def test_values_that_can_be_changed_are_kept_as_bytes(value: Any) -> None:
    found = cached_form(value)
    assert type(found) is SerializedValue
    first, second = value_of(found), value_of(found)
    assert first == second == value
    assert first is not second


def test_a_store_that_fails_is_told() -> None:
    def store(entries: list[Any]) -> None:
        raise OSError("the disk is full")

    cache = ValueCache(CacheBudget(0), lambda place: None, store)
    with pytest.raises(OSError, match="full"):
        cache.put("a", 1)
