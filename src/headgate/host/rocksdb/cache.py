"""A write-back cache of recently used values, as objects, in front of a database.

Law: a clean entry equals the database's; a dirty one is written before it is evicted. Mutable
values are cached as bytes, so that nobody changes the cached value. The estimated weight of all
entries stays below the cache's share of the budget, give or take a few entries.

Entries are evicted in the order in which they came, but one that was used since the last change of
generations stays for another generation.
"""

import pickle
import threading
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from headgate.base.elements import Record
from headgate.base.moved import NOT_FOUND, loads_moved
from headgate.base.values import ATOMS
from headgate.host.rocksdb.codec import pack

ENTRY_BYTES: Final = 256
"""Size of an entry with a short key and a number: two objects, their slots, the dirty mark."""
ITEM_BYTES: Final = 56
CHUNK: Final = 1024
"""Entries evicted at once, in some milliseconds; larger batches are written faster."""

CacheKey: TypeAlias = Hashable
"""The cursor's key, or key and namespace (see ``states``)."""

FIXED: Final = frozenset({int, float, bool, type(None)})
"""Types without weight of their own."""

ABSENT: Final = object()
"""Not cached; None is cached for what the database does not have."""


class SerializedValue(msgspec.Struct, frozen=True, gc=False):
    """A mutable value, as bytes."""

    data: bytes


class CacheBudget:
    """Memory that the caches of a task manager share evenly."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._caches = 0
        self._lock = threading.Lock()  # tasks open and close side by side
        self.share_bytes = total_bytes

    def add_caches(self, more: int) -> None:
        """There are so many caches more, or less."""
        with self._lock:
            self._caches += more
            self.share_bytes = self._total_bytes // max(1, self._caches)


class ValueCache:
    """The values of one state. ``young`` and ``dirty`` are public for the state's hot path."""

    __slots__ = ("_budget", "_load", "_old", "_order", "_store", "dirty", "weight", "young")

    def __init__(
        self,
        budget: CacheBudget,
        load: Callable[[CacheKey], Record],
        store: Callable[[list[tuple[CacheKey, Record]]], None],
    ) -> None:
        self.young: dict[CacheKey, Record] = {}
        self.dirty: set[CacheKey] = set()
        self.weight = 0
        self._old: dict[CacheKey, Record] = {}
        self._order: list[CacheKey] = []
        """Keys of the old generation, the next to evict last."""
        self._budget = budget
        self._load = load
        self._store = store
        budget.add_caches(1)

    def __len__(self) -> int:
        return len(self.young) + len(self._old)

    def fetch(self, key: CacheKey) -> Record:
        """The cached form of a key's value that is not in ``young``."""
        found = self._old.pop(key, ABSENT)
        if found is ABSENT:
            found = self._load(key)
            self.weight += ENTRY_BYTES
            if type(key) not in FIXED or type(found) not in FIXED:
                self.weight += weight_of(key) + weight_of(found)
            self.young[key] = found
            if self.weight > self._budget.share_bytes:
                self._evict()
        else:
            self.young[key] = found
        return found

    def peek(self, key: CacheKey) -> Record:
        """The cached form of a key's value, or ABSENT; the cache stays as it is."""
        found = self.young.get(key, ABSENT)
        return self._old.get(key, ABSENT) if found is ABSENT else found

    def put(self, key: CacheKey, value: Record) -> None:
        """Set a value (see ``cached_form``), to be written later; None: delete."""
        before = self.young.get(key, ABSENT)
        if before is ABSENT:
            before = self._old.pop(key, ABSENT)
        if before is ABSENT:
            self.weight += ENTRY_BYTES + weight_of(key) + weight_of(value)
        else:
            self.weight += weight_of(value) - weight_of(before)
        self.young[key] = value
        self.dirty.add(key)
        if self.weight > self._budget.share_bytes:
            self._evict()

    def copy(self) -> "DirtyEntries":
        """What the database does not have yet; a fast copy, evaluated later."""
        return DirtyEntries(self.young.copy(), self._old.copy(), self.dirty.copy())

    def flush(self, most: int | None = None) -> int:
        """Write all dirty entries, or at most so many; they stay cached. Returns how many."""
        entries = [*islice(DirtyEntries(self.young, self._old, self.dirty).items(), most)]
        self._store(entries)
        self.dirty.difference_update([key for key, _ in entries])
        return len(entries)

    def unwritten(self) -> list[tuple[CacheKey, Record]]:
        """Dirty entries; None: it must be deleted in the database."""
        return [*DirtyEntries(self.young, self._old, self.dirty).items()] if self.dirty else []

    def drop(self, is_meant: Callable[[CacheKey], bool]) -> None:
        """Forget entries, written or not."""
        for generation in (self.young, self._old):
            for key in [key for key in generation if is_meant(key)]:
                self._forget(key, generation.pop(key))
                self.dirty.discard(key)

    def close(self) -> None:
        """Forget everything, and leave the budget to other caches. Once."""
        self.young, self._old, self._order = {}, {}, []
        self.dirty = set()
        self._budget.add_caches(-1)

    def _evict(self) -> None:
        while self.weight > self._budget.share_bytes and (self._old or self.young):
            if not self._order:
                self._old, self.young = self.young, {}
                self._order = [*reversed(self._old)]
            self._store([*self._evicted()])

    def _evicted(self) -> Iterator[tuple[CacheKey, Record]]:
        """Remove some old entries; yields those that must be written."""
        order, old, dirty = self._order, self._old, self.dirty
        for key in order[: -CHUNK - 1 : -1]:
            value = old.pop(key, ABSENT)
            if value is not ABSENT:
                self._forget(key, value)
                if key in dirty:
                    dirty.discard(key)
                    yield key, value
        del order[-CHUNK:]

    def _forget(self, key: CacheKey, value: Record) -> None:
        self.weight -= ENTRY_BYTES
        if type(key) not in FIXED or type(value) not in FIXED:
            self.weight -= weight_of(key) + weight_of(value)


class DirtyEntries:
    """The dirty entries of a cache at one moment; cached forms never change."""

    def __init__(
        self, young: dict[CacheKey, Record], old: dict[CacheKey, Record], dirty: set[CacheKey]
    ) -> None:
        self._young = young
        self._old = old
        self._dirty = dirty

    def items(self) -> Iterator[tuple[CacheKey, Record]]:
        """Keys and cached forms to write, in no order; None: delete."""
        dirty = self._dirty
        for generation in (self._old, self._young):
            for key, value in generation.items():
                if key in dirty:
                    yield key, value


def cached_form(value: Record) -> Record:
    """What a cache holds for a value: itself if it is immutable, else its bytes."""
    kind = type(value)
    if kind in ATOMS or (kind is tuple and ATOMS.issuperset(map(type, value))):
        return value
    return SerializedValue(pack(value))


def value_of(value: Record) -> Record:
    """The value of a cached form."""
    try:
        return pickle.loads(value.data) if type(value) is SerializedValue else value
    except NOT_FOUND as error:
        return loads_moved(value.data, error)


def serialized(value: Record) -> bytes:
    """The database's bytes of a cached form."""
    return value.data if type(value) is SerializedValue else pack(value)


def weight_of(thing: object) -> int:
    """Bytes of a key or value beyond those of a number; always the same for the same object."""
    kind = type(thing)
    if kind in FIXED:
        return 0
    if kind is str or kind is bytes:
        return len(thing)  # type: ignore[arg-type]
    if kind is SerializedValue:
        return len(thing.data) + ITEM_BYTES  # type: ignore[attr-defined]
    if isinstance(thing, tuple):
        return ITEM_BYTES * (1 + len(thing)) + sum(map(weight_of, thing))
    return 4 * ITEM_BYTES
