"""Value, list and map state in RocksDB.

Law: what is read is a copy, and what is written is as it was at that moment; a value that the user
changes without writing it back stays as it was. A list is appended to without being read, a map has
an entry for each of its keys, in the order of their bytes.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from headgate.base.elements import Key, Record
from headgate.base.values import ATOMS
from headgate.core.state.cursor import PLAIN, Cursor, Namespace
from headgate.functions.state import ListState, MapState, ValueState
from headgate.host.rocksdb.cache import (
    ABSENT,
    FIXED,
    CacheBudget,
    CacheKey,
    SerializedValue,
    ValueCache,
    cached_form,
    serialized,
    value_of,
)
from headgate.host.rocksdb.codec import (
    Address,
    AddressCodec,
    behind_head,
    entry_key,
    entry_of,
    pack,
    unpack,
)
from headgate.host.rocksdb.database import Database, WriteEntry

_NUMBER: Final = struct.Struct(">Q")


class _Spaced:
    """Marks a place in a cache that has a namespace; no key of a user's holds it."""


SPACED: Final = _Spaced()


class StateResources:
    """What the states of one backend have in common."""

    def __init__(
        self, database: Database, codec: AddressCodec, budget: CacheBudget, cursor: Cursor
    ) -> None:
        self.database = database
        self.codec = codec
        self.budget = budget
        self.cursor = cursor
        self.numbers = count()
        """Of list elements: a later one is larger, whatever its list."""

    def count_from(self, number: int) -> None:
        """Elements with all numbers below may be in lists."""
        self.numbers = count(max(number, next(self.numbers)))


class StoredValues:
    """All values of one state: the database with a cache in front of it."""

    def __init__(self, room: StateResources, state: int) -> None:
        self._database = room.database
        self._codec = room.codec
        self._state = state
        self.cache = ValueCache(room.budget, self._load, self._store)

    def address(self, place: CacheKey) -> Address:
        """Of a place of the cache."""
        return self._codec.address(self._state, *key_and_namespace(place))

    def _load(self, place: CacheKey) -> Record:
        if type(place) in PLAIN:
            return self._read(self._codec.plain_prefix(self._state, place), False)
        address = self.address(place)
        return self._read(address.prefix, bool(address.head))

    def _read(self, key: bytes, headed: bool) -> Record:
        try:
            data = self._database.get(key)
        except Exception as error:
            raise self._database.trouble(error) from error
        if data is None:
            return None
        return cached_form_of(behind_head(data) if headed else data)

    def _store(self, entries: list[tuple[CacheKey, Record]]) -> None:
        self._database.write(self.as_written(entries))

    def as_written(self, entries: list[tuple[CacheKey, Record]]) -> list[WriteEntry]:
        """What the database gets of a cache's entries, in the order of its keys; any thread."""
        found: list[WriteEntry] = []
        for place, value in entries:
            if type(place) in PLAIN:
                key = self._codec.plain_prefix(self._state, place)
                found.append((key, None if value is None else serialized(value)))
            else:
                address = self.address(place)
                data = None if value is None else address.head + serialized(value)
                found.append((address.prefix, data))
        found.sort()  # neighbours go into the database faster
        return found


def cached_form_of(data: bytes) -> Record:
    """What a cache keeps of a value that was read."""
    value = unpack(data)
    return (
        value
        if type(value) in ATOMS or type(cached_form(value)) is not SerializedValue
        else SerializedValue(data)
    )


class RocksValue(ValueState[Record]):
    """One value for each key; mostly a look-up in the cache."""

    __slots__ = ("_cache", "_cursor")

    def __init__(self, values: StoredValues, cursor: Cursor) -> None:
        self._cache = values.cache
        self._cursor = cursor

    def value(self) -> Record:
        place = self._cursor.key
        found = self._cache.young.get(place, ABSENT)
        if found is ABSENT:
            found = self._cache.fetch(place)
        return value_of(found) if type(found) is SerializedValue else found

    def update(self, value: Record) -> None:
        place, cache = self._cursor.key, self._cache
        # A number in place of a number: the weight stays as it is.
        if type(value) in FIXED and type(cache.young.get(place, ABSENT)) in FIXED:
            cache.young[place] = value
            cache.dirty.add(place)
        else:
            cache.put(place, cached_form(value))

    def clear(self) -> None:
        self._cache.put(self._cursor.key, None)


class NamespacedRocksValue(ValueState[Record]):
    """One value for each key and namespace."""

    __slots__ = ("_cache", "_cursor")

    def __init__(self, values: StoredValues, cursor: Cursor) -> None:
        self._cache = values.cache
        self._cursor = cursor

    def value(self) -> Record:
        place = cache_key_at(self._cursor)
        found = self._cache.young.get(place, ABSENT)
        return value_of(self._cache.fetch(place) if found is ABSENT else found)

    def update(self, value: Record) -> None:
        self._cache.put(cache_key_at(self._cursor), cached_form(value))

    def clear(self) -> None:
        self._cache.put(cache_key_at(self._cursor), None)


def cache_key_at(cursor: Cursor) -> CacheKey:
    """Where a cache keeps the value of the cursor's key and namespace."""
    space = cursor.namespace
    return cursor.key if space is None else (cursor.key, space, SPACED)


def key_and_namespace(place: CacheKey) -> tuple[Key, Namespace]:
    """What a place of a cache stands for; the key is as the cursor holds it."""
    if type(place) is tuple and len(place) == 3 and place[2] is SPACED:
        return place[0], place[1]
    return place, None


class _Addressed:
    """Knows the address of the cursor, and keeps that of the last key and namespace."""

    def __init__(self, room: StateResources, state: int, namespaced: bool) -> None:
        self._room = room
        self._cursor = room.cursor
        self._database = room.database
        self._state = state
        self._namespaced = namespaced
        self._key: object = ABSENT
        self._namespace: object = ABSENT
        self._address = Address(b"")

    def _here(self) -> Address:
        cursor = self._cursor
        key, namespace = cursor.key, cursor.namespace if self._namespaced else None
        if key is not self._key or namespace is not self._namespace:
            self._address = self._room.codec.address(self._state, key, namespace)
            self._key, self._namespace = key, namespace
        return self._address

    def clear(self) -> None:
        self._database.remove(self._here().prefix)


class RocksList(_Addressed, ListState[Record]):
    """An entry for each element, under a number that counts up."""

    def get(self) -> list[Record]:
        address = self._here()
        found = self._database.values(address.prefix)
        return [*map(unpack, map(address.body, found) if address.head else found)]

    def add(self, value: Record) -> None:
        address = self._here()
        number = _NUMBER.pack(next(self._room.numbers))
        data = address.head + pack(value)
        try:
            self._database.put(address.prefix + number, data)
        except Exception as error:
            raise self._database.trouble(error) from error

    def add_all(self, values: Iterable[Record]) -> None:
        self._database.write([*self._entries(values)])

    def update(self, values: Iterable[Record]) -> None:
        entries = [*self._entries(values)]  # they may be those that are read from here
        self.clear()
        self._database.write(entries)

    def _entries(self, values: Iterable[Record]) -> Iterator[WriteEntry]:
        return list_entries(self._room, self._here(), values)


def list_entries(
    room: StateResources, address: Address, values: Iterable[Record]
) -> Iterator[WriteEntry]:
    """What is written for elements of a list."""
    for value in values:
        yield address.prefix + _NUMBER.pack(next(room.numbers)), address.head + pack(value)


class RocksMap(_Addressed, MapState[Record, Record]):
    """An entry for each of the map's keys."""

    def get(self, key: Record) -> Record:
        place, data = self._read(key)
        if data is None:
            return None
        _, body = entry_of(place[len(self._address.prefix) :], self._address.body(data))
        return unpack(body)

    def put(self, key: Record, value: Record) -> None:
        place, head = entry_key(self._here(), hashable(key))
        data = head + pack(value)
        try:
            self._database.put(place, data)
        except Exception as error:
            raise self._database.trouble(error) from error

    def remove(self, key: Record) -> None:
        place, _ = entry_key(self._here(), hashable(key))
        try:
            self._database.delete(place)
        except Exception as error:
            raise self._database.trouble(error) from error

    def contains(self, key: Record) -> bool:
        return self._read(key)[1] is not None

    def items(self) -> list[tuple[Record, Record]]:
        address = self._here()
        start = len(address.prefix)
        found = []
        for place, data in self._database.items(address.prefix):
            key, body = entry_of(place[start:], address.body(data))
            found.append((key, unpack(body)))
        return found

    def keys(self) -> list[Record]:
        """Values are not unpacked, which may be large."""
        address = self._here()
        start = len(address.prefix)
        return [
            entry_of(place[start:], address.body(data))[0]
            for place, data in self._database.items(address.prefix)
        ]

    def is_empty(self) -> bool:
        return not self._database.has(self._here().prefix)

    def _read(self, key: Record) -> tuple[bytes, bytes | None]:
        place, _ = entry_key(self._here(), hashable(key))
        try:
            return place, self._database.get(place)
        except Exception as error:
            raise self._database.trouble(error) from error


def hashable(key: Record) -> Record:
    """The same; raises TypeError for a key that no map takes."""
    hash(key)
    return key
