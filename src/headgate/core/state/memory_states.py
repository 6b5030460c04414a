"""The states of the memory backend, written so that a call does little beside its dictionary.

Plain ones work on one table; namespaced ones look entries up by the cursor's namespace first. Law:
a key that holds nothing has no entry, and a namespace without entries is not there. A state of the
backend is bound to its table or spaces (``bind``): it keeps the view between bundles.
"""

from abc import abstractmethod
from collections.abc import Iterable, MutableMapping
from typing import Final, TypeAlias

from headgate.base.elements import Key, Record
from headgate.core.state.cursor import Cursor, Namespace
from headgate.core.state.tables import Entries
from headgate.functions.state import ListState, MapState, ValueState

ByNamespace: TypeAlias = MutableMapping[Namespace, Entries]


class PlainValue(ValueState[Record]):
    """The hot path of most functions: two dictionary look-ups, nothing else."""

    __slots__ = ("_cursor", "entries")

    def __init__(self, entries: Entries, cursor: Cursor) -> None:
        self.entries = entries
        """What loops with inlined functions work on."""
        self._cursor = cursor

    def bind(self, entries: Entries) -> None:
        self.entries = entries

    def value(self) -> Record:
        return self.entries.get(self._cursor.key)

    def update(self, value: Record) -> None:
        if value is None:
            self.entries.pop(self._cursor.key, None)
        else:
            self.entries[self._cursor.key] = value

    def clear(self) -> None:
        self.entries.pop(self._cursor.key, None)


class NamespacedValue(ValueState[Record]):
    """One value for each key and namespace."""

    __slots__ = ("_cursor", "_spaces")

    def __init__(self, spaces: ByNamespace, cursor: Cursor) -> None:
        self._spaces = spaces
        self._cursor = cursor

    def bind(self, spaces: ByNamespace) -> None:
        self._spaces = spaces

    def value(self) -> Record:
        return self._spaces.get(self._cursor.namespace, _EMPTY).get(self._cursor.key)

    def update(self, value: Record) -> None:
        if value is None:
            remove(self._spaces, self._cursor)
        else:
            put(self._spaces, self._cursor, value)

    def clear(self) -> None:
        remove(self._spaces, self._cursor)


class MemoryList(ListState[Record]):
    """A list for each key; where it is held the two kinds below know."""

    __slots__ = ()

    def get(self) -> list[Record]:
        return list(self._held() or ())

    def add(self, value: Record) -> None:
        held = self._held()
        if held is None:
            self._put([value])
        else:
            held.append(value)

    def add_all(self, values: Iterable[Record]) -> None:
        held = self._held()
        if held is None:
            self.update(values)
        else:
            held += list(values)

    def update(self, values: Iterable[Record]) -> None:
        if held := list(values):
            self._put(held)
        else:
            self.clear()

    @abstractmethod
    def _held(self) -> list[Record] | None: ...

    @abstractmethod
    def _put(self, held: list[Record]) -> None: ...


class PlainList(MemoryList):
    """One for each key; what is called most is written out."""

    __slots__ = ("_cursor", "entries")

    def __init__(self, entries: Entries, cursor: Cursor) -> None:
        self.entries = entries
        self._cursor = cursor

    def bind(self, entries: Entries) -> None:
        self.entries = entries

    def add(self, value: Record) -> None:
        held = self.entries.get(self._cursor.key)
        if held is None:
            self.entries[self._cursor.key] = [value]
        else:
            held.append(value)

    def clear(self) -> None:
        self.entries.pop(self._cursor.key, None)

    def _held(self) -> list[Record] | None:
        return self.entries.get(self._cursor.key)

    def _put(self, held: list[Record]) -> None:
        self.entries[self._cursor.key] = held


class NamespacedList(MemoryList):
    """One for each key and namespace."""

    __slots__ = ("_cursor", "_spaces")

    def __init__(self, spaces: ByNamespace, cursor: Cursor) -> None:
        self._spaces = spaces
        self._cursor = cursor

    def bind(self, spaces: ByNamespace) -> None:
        self._spaces = spaces

    def clear(self) -> None:
        remove(self._spaces, self._cursor)

    def _held(self) -> list[Record] | None:
        return self._spaces.get(self._cursor.namespace, _EMPTY).get(self._cursor.key)

    def _put(self, held: list[Record]) -> None:
        put(self._spaces, self._cursor, held)


class MemoryMap(MapState[Record, Record]):
    """A dictionary for each key; where it is held the two kinds below know."""

    __slots__ = ()

    def get(self, key: Record) -> Record:
        return (self._held() or _EMPTY).get(key)

    def put(self, key: Record, value: Record) -> None:
        held = self._held()
        if held is None:
            self._put({key: value})
        else:
            held[key] = value

    def remove(self, key: Record) -> None:
        held = self._held()
        if held is not None:
            held.pop(key, None)
            if not held:
                self.clear()

    def contains(self, key: Record) -> bool:
        return key in (self._held() or _EMPTY)

    def items(self) -> list[tuple[Record, Record]]:
        return list((self._held() or _EMPTY).items())

    def keys(self) -> list[Record]:
        return list(self._held() or _EMPTY)

    def values(self) -> list[Record]:
        return list((self._held() or _EMPTY).values())

    def is_empty(self) -> bool:
        return not self._held()

    @abstractmethod
    def _held(self) -> dict[Record, Record] | None: ...

    @abstractmethod
    def _put(self, held: dict[Record, Record]) -> None: ...


class PlainMap(MemoryMap):
    """One for each key; what is called most is written out."""

    __slots__ = ("_cursor", "entries")

    def __init__(self, entries: Entries, cursor: Cursor) -> None:
        self.entries = entries
        self._cursor = cursor

    def bind(self, entries: Entries) -> None:
        self.entries = entries

    def get(self, key: Record) -> Record:
        held = self.entries.get(self._cursor.key)
        return None if held is None else held.get(key)

    def put(self, key: Record, value: Record) -> None:
        held = self.entries.get(self._cursor.key)
        if held is None:
            self.entries[self._cursor.key] = {key: value}
        else:
            held[key] = value

    def contains(self, key: Record) -> bool:
        held = self.entries.get(self._cursor.key)
        return held is not None and key in held

    def clear(self) -> None:
        self.entries.pop(self._cursor.key, None)

    def _held(self) -> dict[Record, Record] | None:
        return self.entries.get(self._cursor.key)

    def _put(self, held: dict[Record, Record]) -> None:
        self.entries[self._cursor.key] = held


class NamespacedMap(MemoryMap):
    """One for each key and namespace."""

    __slots__ = ("_cursor", "_spaces")

    def __init__(self, spaces: ByNamespace, cursor: Cursor) -> None:
        self._spaces = spaces
        self._cursor = cursor

    def bind(self, spaces: ByNamespace) -> None:
        self._spaces = spaces

    def clear(self) -> None:
        remove(self._spaces, self._cursor)

    def _held(self) -> dict[Record, Record] | None:
        return self._spaces.get(self._cursor.namespace, _EMPTY).get(self._cursor.key)

    def _put(self, held: dict[Record, Record]) -> None:
        put(self._spaces, self._cursor, held)


def put(spaces: ByNamespace, cursor: Cursor, content: Record) -> None:
    """Set an entry; its namespace comes with the first one."""
    entries = spaces.get(cursor.namespace)
    if entries is None:
        spaces[cursor.namespace] = {cursor.key: content}
    else:
        entries[cursor.key] = content


def remove(spaces: ByNamespace, cursor: Cursor) -> None:
    """Drop an entry, and the namespace with its last one."""
    entries = spaces.get(cursor.namespace)
    if entries is not None:
        entries.pop(cursor.key, None)
        if not entries and cursor.namespace is not None:
            del spaces[cursor.namespace]


_EMPTY: Final[dict[Key, Record]] = {}
