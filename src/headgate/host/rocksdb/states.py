"""Value, list and map state in RocksDB.

Law: reads return copies, and a write stores the value as it is at that moment; a value that the
user changes without writing it back is stored unchanged. A list is appended to without being read;
a map has a database entry per key, in the order of the keys' bytes.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from headgate.base.elements import Key, Record
from headgate.base.values import ATOMS
from headgate.core.state.backend import ValueTooLarge
from headgate.core.state.cursor import PLAIN, Cursor, Namespace
from headgate.core.state.snapshot import LIST, VALUE
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
    after_head,
    entry_key,
    entry_of,
    pack,
    unpack,
)
from headgate.host.rocksdb.database import Database, WriteEntry

_NUMBER: Final = struct.Struct(">Q")


class _NamespacedKey:
    """Marks a cache key that has a namespace; no key of a user holds it."""


NAMESPACED: Final = _NamespacedKey()


class StateResources:
    """What the states of one backend share."""

    def __init__(
        self, database: Database, codec: AddressCodec, budget: CacheBudget, cursor: Cursor
    ) -> None:
        self.database = database
        self.codec = codec
        self.budget = budget
        self.cursor = cursor
        self.numbers = count()
        """Numbers of list elements, increasing over all lists."""

    def count_from(self, number: int) -> None:
        """Lists may hold elements with all numbers below."""
        self.numbers = count(max(number, next(self.numbers)))


class StoredValues:
    """All values of one state: the database with a cache in front of it."""

    def __init__(self, resources: StateResources, state: int) -> None:
        self._database = resources.database
        self._codec = resources.codec
        self._state = state
        self.cache = ValueCache(resources.budget, self._load, self._store)

    def address(self, cache_key: CacheKey) -> Address:
        """The database address of a cache key."""
        return self._codec.address(self._state, *key_and_namespace(cache_key))

    def _load(self, cache_key: CacheKey) -> Record:
        if type(cache_key) in PLAIN:
            return self._read(self._codec.plain_prefix(self._state, cache_key), False)
        address = self.address(cache_key)
        return self._read(address.prefix, bool(address.head))

    def _read(self, key: bytes, headed: bool) -> Record:
        try:
            data = self._database.get(key)
        except Exception as error:
            raise self._database.trouble(error) from error
        if data is None:
            return None
        return cached_form_of(after_head(data) if headed else data)

    def _store(self, entries: list[tuple[CacheKey, Record]]) -> None:
        self._database.write(self.as_written(entries))

    def as_written(self, entries: list[tuple[CacheKey, Record]]) -> list[WriteEntry]:
        """Cache entries as database entries, sorted by key; on any thread."""
        found: list[WriteEntry] = []
        for cache_key, value in entries:
            if type(cache_key) in PLAIN:
                key = self._codec.plain_prefix(self._state, cache_key)
                found.append((key, None if value is None else serialized(value)))
            else:
                address = self.address(cache_key)
                data = None if value is None else address.head + serialized(value)
                found.append((address.prefix, data))
        found.sort()  # the database takes sorted entries faster
        return found


def cached_form_of(data: bytes) -> Record:
    """The cached form of a value that was read."""
    value = unpack(data)
    return (
        value
        if type(value) in ATOMS or type(cached_form(value)) is not SerializedValue
        else SerializedValue(data)
    )


class RocksValue(ValueState[Record]):
    """One value per key; mostly a look-up in the cache."""

    __slots__ = ("_cache", "_cursor")

    def __init__(self, values: StoredValues, cursor: Cursor) -> None:
        self._cache = values.cache
        self._cursor = cursor

    def value(self) -> Record:
        cache_key = self._cursor.key
        found = self._cache.young.get(cache_key, ABSENT)
        if found is ABSENT:
            found = self._cache.fetch(cache_key)
        return value_of(found) if type(found) is SerializedValue else found

    def update(self, value: Record) -> None:
        cache_key, cache = self._cursor.key, self._cache
        # A number in place of a number: the weight stays as it is.
        if type(value) in FIXED and type(cache.young.get(cache_key, ABSENT)) in FIXED:
            cache.young[cache_key] = value
            cache.dirty.add(cache_key)
        else:
            cache.put(cache_key, cached_form(value))

    def clear(self) -> None:
        self._cache.put(self._cursor.key, None)


class NamespacedRocksValue(RocksValue):
    """One value per key and namespace."""

    __slots__ = ()

    def value(self) -> Record:
        cache_key = cache_key_at(self._cursor)
        found = self._cache.young.get(cache_key, ABSENT)
        return value_of(self._cache.fetch(cache_key) if found is ABSENT else found)

    def update(self, value: Record) -> None:
        self._cache.put(cache_key_at(self._cursor), cached_form(value))

    def clear(self) -> None:
        self._cache.put(cache_key_at(self._cursor), None)


def cache_key_at(cursor: Cursor) -> CacheKey:
    """The cache key of the cursor's key and namespace."""
    space = cursor.namespace
    return cursor.key if space is None else (cursor.key, space, NAMESPACED)


def key_and_namespace(cache_key: CacheKey) -> tuple[Key, Namespace]:
    """What a cache key stands for; the key is as the cursor holds it."""
    if type(cache_key) is tuple and len(cache_key) == 3 and cache_key[2] is NAMESPACED:
        return cache_key[0], cache_key[1]
    return cache_key, None


class _CursorAddress:
    """The address of the cursor in one state; that of the last key and namespace is cached."""

    __slots__ = ("_address", "_codec", "_cursor", "_key", "_namespace", "_namespaced", "_state")

    def __init__(self, resources: StateResources, state: int, namespaced: bool) -> None:
        self._codec = resources.codec
        self._cursor = resources.cursor
        self._state = state
        self._namespaced = namespaced
        self._key: object = ABSENT
        self._namespace: object = ABSENT
        self._address = Address(b"")

    def here(self) -> Address:
        cursor = self._cursor
        key, namespace = cursor.key, cursor.namespace if self._namespaced else None
        if key is not self._key or namespace is not self._namespace:
            self._address = self._codec.address(self._state, key, namespace)
            self._key, self._namespace = key, namespace
        return self._address


class RocksList(ListState[Record]):
    """An entry per element, under an increasing number."""

    def __init__(self, resources: StateResources, state: int, namespaced: bool) -> None:
        self._resources = resources
        self._database = resources.database
        self._here = _CursorAddress(resources, state, namespaced).here

    def clear(self) -> None:
        self._database.remove(self._here().prefix)

    def get(self) -> list[Record]:
        address = self._here()
        found = self._database.values(address.prefix)
        return [*map(unpack, map(address.body, found) if address.head else found)]

    def add(self, value: Record) -> None:
        address = self._here()
        number = _NUMBER.pack(next(self._resources.numbers))
        data = address.head + pack(value)
        try:
            self._database.put(address.prefix + number, data)
        except Exception as error:
            raise self._database.trouble(error) from error

    def add_all(self, values: Iterable[Record]) -> None:
        self._database.write([*self._entries(values)])

    def update(self, values: Iterable[Record]) -> None:
        entries = [*self._entries(values)]  # values may be an iterator over this very list
        self.clear()
        self._database.write(entries)

    def _entries(self, values: Iterable[Record]) -> Iterator[WriteEntry]:
        return list_entries(self._resources, self._here(), values)


def list_entries(
    resources: StateResources, address: Address, values: Iterable[Record]
) -> Iterator[WriteEntry]:
    """The database entries of list elements."""
    for value in values:
        yield address.prefix + _NUMBER.pack(next(resources.numbers)), address.head + pack(value)


class RocksMap(MapState[Record, Record]):
    """An entry per key of the map."""

    def __init__(self, resources: StateResources, state: int, namespaced: bool) -> None:
        self._database = resources.database
        self._here = _CursorAddress(resources, state, namespaced).here

    def clear(self) -> None:
        self._database.remove(self._here().prefix)

    def get(self, key: Record) -> Record:
        address = self._here()
        head, data = self._read(address, key)
        if data is None:
            return None
        body = address.body(data)
        return unpack(after_head(body) if len(head) > len(address.head) else body)

    def put(self, key: Record, value: Record) -> None:
        db_key, head = entry_key(self._here(), hashable(key))
        data = head + pack(value)
        try:
            self._database.put(db_key, data)
        except Exception as error:
            raise self._database.trouble(error) from error

    def remove(self, key: Record) -> None:
        db_key, _ = entry_key(self._here(), hashable(key))
        try:
            self._database.delete(db_key)
        except Exception as error:
            raise self._database.trouble(error) from error

    def contains(self, key: Record) -> bool:
        return self._read(self._here(), key)[1] is not None

    def items(self) -> list[tuple[Record, Record]]:
        address = self._here()
        start = len(address.prefix)
        found = []
        for db_key, data in self._database.items(address.prefix):
            key, body = entry_of(db_key[start:], address.body(data))
            found.append((key, unpack(body)))
        return found

    def keys(self) -> list[Record]:
        """Without unpacking values, which may be large."""
        address = self._here()
        start = len(address.prefix)
        return [
            entry_of(db_key[start:], address.body(data))[0]
            for db_key, data in self._database.items(address.prefix)
        ]

    def is_empty(self) -> bool:
        return not self._database.has(self._here().prefix)

    def _read(self, address: Address, key: Record) -> tuple[bytes, bytes | None]:
        """The heads before such a value, as they are written now, and what is stored."""
        db_key, head = entry_key(address, hashable(key))
        try:
            return head, self._database.get(db_key)
        except Exception as error:
            raise self._database.trouble(error) from error


def read_stored(database: Database, address: Address, kind: str, most_bytes: int) -> Record:
    """What the database holds at an address; None: nothing. Raises ValueTooLarge."""
    if kind == VALUE:
        try:
            data = database.get(address.prefix)
        except Exception as error:
            raise database.trouble(error) from error
        return None if data is None else unpack(address.body(data))
    start, size = len(address.prefix), 0
    found: list[tuple[Record, Record]] = []
    for db_key, data in database.items(address.prefix):
        size += len(data)
        if size > most_bytes:
            raise ValueTooLarge
        body = address.body(data)
        key, body = (None, body) if kind == LIST else entry_of(db_key[start:], body)
        found.append((key, unpack(body)))
    if not found:
        return None
    return [value for _, value in found] if kind == LIST else dict(found)


def hashable(key: Record) -> Record:
    """The key itself; raises TypeError for a key that no map takes."""
    hash(key)
    return key
