"""State in memory: a dictionary for each state and namespace, values as they are.

Law: at one key and namespace there is one value, list or map, the same object that was put in; a
snapshot holds what was there when it was taken. Taking one costs a shallow copy of each table. A
key that holds nothing has no entry, and a namespace without entries is not there.

States are written so that a call does little beside its dictionary. Each works on the entries of
one table; one that is kept by namespace works on those of the cursor's namespace. It is bound to
its table (``bind``), so that it can keep the view between bundles.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar, cast

from headgate.base.checkpoints import Piece
from headgate.base.elements import Key, Record
from headgate.core.state.backend import (
    Catalog,
    Sieve,
    SnapshotFiles,
    StateSpec,
    StoredDatabase,
    Sweep,
)
from headgate.core.state.cursor import Cursor, Namespace, seen
from headgate.core.state.keys import Frozen, key_group
from headgate.core.state.snapshot import (
    EVENT_TIMER,
    PROCESSING_TIMER,
    Entry,
    GroupWriter,
    read_group,
)
from headgate.core.state.tables import Entries, Spaces
from headgate.core.state.timers import TimerQueue, timers_of
from headgate.functions.state import ListState, MapState, State, ValueState

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


class PlainList(ListState[Record]):
    """A list for each key."""

    __slots__ = ("_cursor", "entries")

    def __init__(self, entries: Entries, cursor: Cursor) -> None:
        self.entries = entries
        self._cursor = cursor

    def bind(self, entries: Entries) -> None:
        self.entries = entries

    def get(self) -> list[Record]:
        return list(self.entries.get(self._cursor.key) or ())

    def add(self, value: Record) -> None:
        held = self.entries.get(self._cursor.key)
        if held is None:
            self.entries[self._cursor.key] = [value]
        else:
            held.append(value)

    def add_all(self, values: Iterable[Record]) -> None:
        held = self.entries.get(self._cursor.key)
        if held is None:
            self.update(values)
        else:
            held += list(values)

    def update(self, values: Iterable[Record]) -> None:
        if held := list(values):
            self.entries[self._cursor.key] = held
        else:
            self.clear()

    def clear(self) -> None:
        self.entries.pop(self._cursor.key, None)


class PlainMap(MapState[Record, Record]):
    """A dictionary for each key."""

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

    def remove(self, key: Record) -> None:
        held = self.entries.get(self._cursor.key)
        if held is not None:
            held.pop(key, None)
            if not held:
                self.clear()

    def contains(self, key: Record) -> bool:
        held = self.entries.get(self._cursor.key)
        return held is not None and key in held

    def items(self) -> list[tuple[Record, Record]]:
        return list(self._held().items())

    def keys(self) -> list[Record]:
        return list(self._held())

    def values(self) -> list[Record]:
        return list(self._held().values())

    def is_empty(self) -> bool:
        return not self._held()

    def clear(self) -> None:
        self.entries.pop(self._cursor.key, None)

    def _held(self) -> dict[Record, Record]:
        return self.entries.get(self._cursor.key) or _EMPTY


class NamespaceEntries:
    """The entries of the cursor's namespace, as far as states use them.

    A namespace comes with its first entry and goes with its last.
    """

    __slots__ = ("_cursor", "spaces")

    def __init__(self, spaces: ByNamespace, cursor: Cursor) -> None:
        self.spaces = spaces
        self._cursor = cursor

    def bind(self, spaces: ByNamespace) -> None:
        self.spaces = spaces

    def get(self, key: Key) -> Record:
        return self.spaces.get(self._cursor.namespace, _EMPTY).get(key)

    def __setitem__(self, key: Key, content: Record) -> None:
        entries = self.spaces.get(self._cursor.namespace)
        if entries is None:
            self.spaces[self._cursor.namespace] = {key: content}
        else:
            entries[key] = content

    def pop(self, key: Key, default: None) -> None:
        namespace = self._cursor.namespace
        entries = self.spaces.get(namespace)
        if entries is not None:
            entries.pop(key, default)
            if not entries and namespace is not None:
                del self.spaces[namespace]


class NamespacedValue(PlainValue):
    """A value for each key and namespace; windows read it for each record."""

    __slots__ = ("_found",)

    def __init__(self, found: NamespaceEntries, cursor: Cursor) -> None:
        super().__init__(cast("Entries", found), cursor)
        self._found = found

    def value(self) -> Record:
        cursor = self._cursor
        return self._found.spaces.get(cursor.namespace, _EMPTY).get(cursor.key)


_EMPTY: Final[dict[Key, Record]] = {}


S = TypeVar("S", PlainValue, PlainList, PlainMap)


class MemoryBackend:
    """See ``KeyedBackend``."""

    def __init__(self, groups: range, max_parallelism: int) -> None:
        self.cursor = Cursor()
        self.event_timers = TimerQueue()
        self.processing_timers = TimerQueue()
        self._groups = groups
        self._max_parallelism = max_parallelism
        self.catalog = Catalog()
        self.sweeps: list[Sweep] = []
        self._spaces: dict[str, Spaces] = {}
        self._states: dict[tuple[str, type, bool], State] = {}
        """One of a name and kind, however often it is asked for: its table has it for good."""
        self._snapshots = 0

    def value_state(self, spec: StateSpec) -> ValueState[Record]:
        return self._state(spec, PlainValue)

    def list_state(self, spec: StateSpec) -> ListState[Record]:
        return self._state(spec, PlainList)

    def map_state(self, spec: StateSpec) -> MapState[Record, Record]:
        return self._state(spec, PlainMap)

    def direct(self, spec: StateSpec) -> Spaces | None:
        self.catalog.open(spec)
        return self._spaces_of(spec.name)

    def places(self, spec: StateSpec) -> Iterator[tuple[Namespace, Key]]:
        by_namespace = self._spaces_of(spec.name).by_namespace
        for namespace in list(by_namespace):
            if (namespace is not None) is spec.namespaced:
                for key in list(by_namespace.get(namespace, ())):
                    yield namespace, key

    def read(self, name: str, kind: str, key: Key, most_bytes: int) -> Record:
        spaces = self._spaces.get(name)
        return None if spaces is None else spaces.plain.entries.get(key)

    def forget_key(self) -> None:
        key = self.cursor.key
        for spaces in self._spaces.values():
            for namespace, entries in list(spaces.view.items()):
                entries.pop(key, None)
                if not entries and namespace is not None:
                    del spaces.view[namespace]
        self.event_timers.forget_key(key)
        self.processing_timers.forget_key(key)

    def snapshot(self, increment: int | None = None) -> "MemorySnapshot":
        """See ``KeyedBackend``; it is always the whole state."""
        self._snapshots = number = self._snapshots + 1
        frozen = MemorySnapshot(self._max_parallelism, lambda: self._release(number))
        sieves = self.catalog.sieves()
        for name, spaces in self._spaces.items():
            kind = self.catalog.stored_as[name]
            frozen.states.append((kind, name, spaces.freeze(number), sieves.get(name)))
        frozen.event_timers = self.event_timers.freeze(number)
        frozen.processing_timers = self.processing_timers.freeze(number)
        return frozen

    def checkpoint_completed(self, checkpoint: int) -> None:
        """No later one names what this one has written."""

    def checkpoint_aborted(self, checkpoint: int) -> None:
        """No later one names what it has written."""

    def restore_files(self, databases: Sequence[StoredDatabase]) -> None:
        for database in databases:
            self.restore(database.read(self._groups))

    def restore(self, parts: Iterable[tuple[int, bytes]]) -> None:
        for group, data in parts:
            if group in self._groups:
                for entry in read_group(group, self._max_parallelism, data):
                    self._take(entry)

    def size_bytes(self) -> None:
        """Not known: the objects would have to be counted."""

    def close(self) -> None:
        for spaces in self._spaces.values():
            spaces.plain.entries.clear()
        self._spaces.clear()
        self._states.clear()
        self.event_timers.clear()
        self.processing_timers.clear()

    def _state(self, spec: StateSpec, kind: type[S]) -> S:
        self.catalog.open(spec)
        place = spec.name, kind, spec.namespaced
        state = self._states.get(place)
        if state is None:
            spaces, cursor = self._spaces_of(spec.name), self.cursor
            if not spec.namespaced:
                state = spaces.plain.bound(kind(spaces.plain.view, cursor))
            else:
                found = spaces.bound(NamespaceEntries(spaces.view, cursor))
                state = (NamespacedValue if kind is PlainValue else kind)(found, cursor)  # type: ignore[arg-type]
            self._states[place] = state
        return cast(S, state)

    def _spaces_of(self, name: str) -> Spaces:
        spaces = self._spaces.get(name)
        if spaces is None:
            spaces = self._spaces[name] = Spaces()
        return spaces

    def _take(self, entry: Entry) -> None:
        kind, name, namespace, key, content = entry
        if kind == EVENT_TIMER:
            self.event_timers.register(content, seen(key), namespace)
        elif kind == PROCESSING_TIMER:
            self.processing_timers.register(content, seen(key), namespace)
        else:
            self.catalog.restore(name, kind)
            self._spaces_of(name).view.setdefault(namespace, {})[seen(key)] = content

    def _release(self, number: int) -> None:
        for spaces in self._spaces.values():
            spaces.thaw(number)
        self.event_timers.thaw(number)
        self.processing_timers.thaw(number)


class MemorySnapshot:
    """See ``Snapshot``. Values are shared with the backend until the snapshot is closed.

    Sorting the entries into key groups and pickling them is the long part. It can be done in
    slices, by ``advance``, between the task's bundles; ``groups`` does what is left.
    """

    def __init__(self, max_parallelism: int, release: Callable[[], None]) -> None:
        self.states: list[tuple[str, str, dict[Namespace, dict[Key, Record]], Sieve | None]] = []
        """Kind, name, entries by namespace and key, and what lets through what has not expired."""
        self.event_timers: dict[Key, Record] = {}
        self.processing_timers: dict[Key, Record] = {}
        self._max_parallelism = max_parallelism
        self._release = release
        self._writers: dict[int, GroupWriter] = {}
        self._rest: Iterator[Entry] = self._entries()

    def advance(self, entries: int) -> bool:
        """Write up to so many entries; False: there are no more."""
        taken = list(islice(self._rest, entries))
        for entry in taken:
            group = key_group(entry[3], self._max_parallelism)
            writer = self._writers.get(group)
            if writer is None:
                writer = self._writers[group] = GroupWriter(group, self._max_parallelism)
            writer.add(entry)
        return len(taken) == entries

    def groups(self) -> Iterator[tuple[int, bytes]]:
        while self.advance(_SLICE_ENTRIES):
            pass
        for group in sorted(self._writers):
            yield group, self._writers.pop(group).finish()

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        """None: everything is in the groups."""
        return {}

    def close(self) -> None:
        # Another thread may still be in ``groups``; it keeps what it holds, for nobody.
        self._release()
        self.states, self.event_timers, self.processing_timers = [], {}, {}
        self._rest = iter(())
        self._writers = {}

    def _entries(self) -> Iterator[Entry]:
        for kind, name, spaces, sieve in self.states:
            for namespace, entries in spaces.items():
                for key, content in entries.items():
                    left = content if sieve is None else sieve(content)
                    if left is not None:
                        yield kind, name, namespace, _plain(key), left
        for kind, timers in (
            (EVENT_TIMER, self.event_timers),
            (PROCESSING_TIMER, self.processing_timers),
        ):
            for time_ms, ones in timers.items():
                for key, namespace in timers_of(ones):
                    yield kind, "", namespace, _plain(key), time_ms


class MemoryBackends:
    """See ``Backends``."""

    def keyed(self, operator: str, groups: range, max_parallelism: int) -> MemoryBackend:
        return MemoryBackend(groups, max_parallelism)


_SLICE_ENTRIES = 4096


def _plain(key: Key) -> Key:
    return key.key if type(key) is Frozen else key
