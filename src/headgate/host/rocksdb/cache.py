"""Values that were used last, as objects, in front of a database.

Law: what is not dirty here is in the database as it is here; a dirty value is written before it is
given up. Values that can be changed are kept as bytes, so that nobody changes what is kept. The
weight of all entries, an estimate, stays below the share of the budget but for a few entries.

Entries are given up in the order in which they came, but one that was used since the last turn of
generations stays for another.
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
"""What an entry with a short key and a number takes: two objects, their slots, the dirty mark."""
ITEM_BYTES: Final = 56
CHUNK: Final = 1024
"""Entries that are given up at once, in some milliseconds; more of them are written faster."""

CacheKey: TypeAlias = Hashable
"""The cursor's key, or key and namespace (see ``rocksdb_states``)."""

FIXED: Final = frozenset({int, float, bool, type(None)})
"""Kinds that have no weight of their own."""

ABSENT: Final = object()
"""Nothing is known here; None: it is known that the database has nothing."""


class SerializedValue(msgspec.Struct, frozen=True, gc=False):
    """A value that can be changed, as bytes."""

    data: bytes


class CacheBudget:
    """Bytes that the caches of a task manager share evenly."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._caches = 0
        self._lock = threading.Lock()  # tasks open and close side by side
        self.share_bytes = total_bytes

    def joined(self) -> None:
        """There is one cache more."""
        self._count(1)

    def left(self) -> None:
        """There is one less."""
        self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            self._caches += more
            self.share_bytes = self._total_bytes // max(1, self._caches)


class ValueCache:
    """The values of one state. ``young`` and ``dirty`` are open to the state: every record asks."""

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
        """Those of the old generation, the first one last."""
        self._budget = budget
        self._load = load
        self._store = store
        budget.joined()

    def __len__(self) -> int:
        return len(self.young) + len(self._old)

    def fetch(self, place: CacheKey) -> Record:
        """What is kept for a place that is not among the young."""
        found = self._old.pop(place, ABSENT)
        if found is ABSENT:
            found = self._load(place)
            self.weight += ENTRY_BYTES
            if type(place) not in FIXED or type(found) not in FIXED:
                self.weight += weight_of(place) + weight_of(found)
            self.young[place] = found
            if self.weight > self._budget.share_bytes:
                self._give_up()
        else:
            self.young[place] = found
        return found

    def put(self, place: CacheKey, value: Record) -> None:
        """Keep a value (see ``cached_form``), to be written later; None: delete."""
        before = self.young.get(place, ABSENT)
        if before is ABSENT:
            before = self._old.pop(place, ABSENT)
        if before is ABSENT:
            self.weight += ENTRY_BYTES + weight_of(place) + weight_of(value)
        else:
            self.weight += weight_of(value) - weight_of(before)
        self.young[place] = value
        self.dirty.add(place)
        if self.weight > self._budget.share_bytes:
            self._give_up()

    def copy(self) -> "DirtyEntries":
        """What the database does not have yet; quick, whatever is to be done with it later."""
        return DirtyEntries(self.young.copy(), self._old.copy(), self.dirty.copy())

    def flush(self, most: int | None = None) -> int:
        """Write everything, or up to so many entries; it stays here, too. Answers how many."""
        entries = [*islice(DirtyEntries(self.young, self._old, self.dirty).items(), most)]
        self._store(entries)
        self.dirty.difference_update([place for place, _ in entries])
        return len(entries)

    def unwritten(self) -> list[tuple[CacheKey, Record]]:
        """What is not in the database; None: it must be deleted there."""
        return [*DirtyEntries(self.young, self._old, self.dirty).items()] if self.dirty else []

    def drop(self, is_meant: Callable[[CacheKey], bool]) -> None:
        """Forget places, written or not."""
        for generation in (self.young, self._old):
            for place in [place for place in generation if is_meant(place)]:
                self._forget(place, generation.pop(place))
                self.dirty.discard(place)

    def close(self) -> None:
        """Forget everything, and leave the budget to the others. Once."""
        self.young, self._old, self._order = {}, {}, []
        self.dirty = set()
        self._budget.left()

    def _give_up(self) -> None:
        while self.weight > self._budget.share_bytes and (self._old or self.young):
            if not self._order:
                self._old, self.young = self.young, {}
                self._order = [*reversed(self._old)]
            self._store([*self._leaving()])

    def _leaving(self) -> Iterator[tuple[CacheKey, Record]]:
        """Take out some of the old; those that must be written."""
        order, old, dirty = self._order, self._old, self.dirty
        for place in order[: -CHUNK - 1 : -1]:
            value = old.pop(place, ABSENT)
            if value is not ABSENT:
                self._forget(place, value)
                if place in dirty:
                    dirty.discard(place)
                    yield place, value
        del order[-CHUNK:]

    def _forget(self, place: CacheKey, value: Record) -> None:
        self.weight -= ENTRY_BYTES
        if type(place) not in FIXED or type(value) not in FIXED:
            self.weight -= weight_of(place) + weight_of(value)


class DirtyEntries:
    """A cache at one moment. Its values never change, for those that could are bytes."""

    def __init__(
        self, young: dict[CacheKey, Record], old: dict[CacheKey, Record], dirty: set[CacheKey]
    ) -> None:
        self._young = young
        self._old = old
        self._dirty = dirty

    def items(self) -> Iterator[tuple[CacheKey, Record]]:
        """Places and what is to be written there, in no order; None: delete."""
        dirty = self._dirty
        for generation in (self._old, self._young):
            for place, value in generation.items():
                if place in dirty:
                    yield place, value


def cached_form(value: Record) -> Record:
    """What a cache keeps of a value: itself if nobody can change it, otherwise bytes."""
    kind = type(value)
    if kind in ATOMS or (kind is tuple and ATOMS.issuperset(map(type, value))):
        return value
    return SerializedValue(pack(value))


def value_of(value: Record) -> Record:
    """The value, of what is kept."""
    try:
        return pickle.loads(value.data) if type(value) is SerializedValue else value
    except NOT_FOUND as error:
        return loads_moved(value.data, error)


def serialized(value: Record) -> bytes:
    """What the database gets of what is kept."""
    return value.data if type(value) is SerializedValue else pack(value)


def weight_of(thing: object) -> int:
    """Bytes of a key or value beyond those of a number; the same whenever it is asked."""
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
