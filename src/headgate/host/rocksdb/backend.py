"""The state backend on RocksDB: keyed state larger than memory, timers in memory.

Each operator of each task has a database in a folder of its own; all databases of a task manager
share one budget of memory. Law: a database and its folder are gone when the backend is closed.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from headgate.base.elements import Key, Record
from headgate.base.errors import StateBroken
from headgate.base.settings import StateSettings
from headgate.core.state.backend import Catalog, Snapshot, StateSpec, StoredDatabase, Sweep
from headgate.core.state.cursor import Cursor, Namespace, seen
from headgate.core.state.snapshot import (
    EVENT_TIMER,
    LIST,
    PROCESSING_TIMER,
    TTL,
    VALUE,
    Entry,
    read_group,
)
from headgate.core.state.timers import TimerQueue
from headgate.functions.state import ListState, MapState, ValueState
from headgate.host.rocksdb.cache import ABSENT, CacheBudget, value_of
from headgate.host.rocksdb.codec import AddressCodec, entry_key, pack, state_prefix
from headgate.host.rocksdb.database import Database, SharedMemory, StateFolder, WriteEntry
from headgate.host.rocksdb.snapshots import (
    DatabaseCatalog,
    FileSnapshot,
    Increments,
    RocksSnapshot,
    Timers,
    entries_in,
    groups_in,
    write_late_entries,
)
from headgate.host.rocksdb.states import (
    NamespacedRocksValue,
    RocksList,
    RocksMap,
    RocksValue,
    StateResources,
    StoredValues,
    key_and_namespace,
    list_entries,
    read_stored,
)

BATCH: Final = 1000
"""Entries per write of a restore."""
FLUSHED: Final = 16 * 1024
"""Values that an incremental snapshot writes to the database while the task waits, 5 us each. The
rest is written with the snapshot, and with each further one until it is flushed."""


class RocksBackend:
    """See ``KeyedBackend``."""

    def __init__(
        self, database: Database, budget: CacheBudget, groups: range, max_parallelism: int
    ) -> None:
        self.cursor = Cursor()
        self.event_timers = TimerQueue()
        self.processing_timers = TimerQueue()
        self._groups = groups
        self._max_parallelism = max_parallelism
        self._database = database
        self._codec = AddressCodec(max_parallelism)
        self._resources = StateResources(database, self._codec, budget, self.cursor)
        self.catalog = Catalog()
        self.sweeps: list[Sweep] = []
        self._numbers: dict[str, int] = {}
        self._values: dict[str, StoredValues] = {}
        self._increments = Increments()
        self._closed = False

    def value_state(self, spec: StateSpec) -> ValueState[Record]:
        self.catalog.open(spec)
        values = self._values.get(spec.name)
        if values is None:
            values = self._values[spec.name] = StoredValues(
                self._resources, self._number(spec.name)
            )
        kind = NamespacedRocksValue if spec.namespaced else RocksValue
        return kind(values, self.cursor)

    def list_state(self, spec: StateSpec) -> ListState[Record]:
        self.catalog.open(spec)
        return RocksList(self._resources, self._number(spec.name), spec.namespaced)

    def map_state(self, spec: StateSpec) -> MapState[Record, Record]:
        self.catalog.open(spec)
        return RocksMap(self._resources, self._number(spec.name), spec.namespaced)

    def direct(self, spec: StateSpec) -> None:
        """No effect: the database holds no objects that could be shared."""

    def places(self, spec: StateSpec) -> Iterator[tuple[Namespace, Key]]:
        """See ``KeyedBackend``; keys come in the order of their bytes."""
        number = self._number(spec.name)
        if spec.name in self._values:
            self._values[spec.name].cache.flush()
        for group in self._groups:
            last = b""
            for key, data in self._database.items(state_prefix(group, number)):
                if not last or not key.startswith(last):
                    found = self._codec.decode(key, data)
                    last = found.prefix
                    if spec.namespaced == (found.namespace is not None):
                        yield found.namespace, seen(found.key)

    def read(self, name: str, kind: str, key: Key, most_bytes: int) -> Record:
        """See ``KeyedBackend``."""
        number = self._numbers.get(name)
        if number is None:
            return None
        if kind == VALUE and name in self._values:
            cached = self._values[name].cache.peek(key)
            if cached is not ABSENT:
                return value_of(cached)
        return read_stored(self._database, self._codec.address(number, key, None), kind, most_bytes)

    def forget_key(self) -> None:
        key = self.cursor.key
        for values in self._values.values():
            values.cache.drop(lambda cache_key: key_and_namespace(cache_key)[0] == key)
        for number in self._numbers.values():
            self._database.remove(self._codec.key_prefix(number, key))
        self.event_timers.forget_key(key)
        self.processing_timers.forget_key(key)

    def snapshot(self, increment: int | None = None) -> Snapshot:
        """See ``KeyedBackend``."""
        return self._whole() if increment is None else self._files(increment)

    def size_bytes(self) -> int | None:
        return self._database.size_bytes()

    def checkpoint_completed(self, checkpoint: int) -> None:
        self._increments.completed(checkpoint)

    def checkpoint_aborted(self, checkpoint: int) -> None:
        self._increments.aborted(checkpoint)

    def _whole(self) -> RocksSnapshot:
        """Fast: what only the caches hold is copied, not written."""
        return RocksSnapshot(
            self._groups,
            self._max_parallelism,
            {number: name for name, number in self._numbers.items()},
            dict(self.catalog.stored_as),
            self.catalog.sieves(),
            tuple((name, values, values.cache.copy()) for name, values in self._values.items()),
            self._timers(),
            self._codec,
            self._database.everything(),
        )

    def _files(self, checkpoint: int) -> FileSnapshot:
        """Fast: a bounded number of dirty values goes to the database."""
        room = FLUSHED
        for values in self._values.values():
            room -= values.cache.flush(room)
        unwritten = [(values, values.cache.unwritten()) for values in self._values.values()]
        catalog = DatabaseCatalog(
            self._max_parallelism,
            self._numbers.copy(),
            self.catalog.stored_as.copy(),
            (),
            next(self._resources.numbers),
        )
        folder = self._database.link()
        increment = self._increments.begin(checkpoint)
        return FileSnapshot(folder, catalog, self._codec, unwritten, self._timers(), increment)

    def _timers(self) -> Timers:
        return (
            (EVENT_TIMER, [*self.event_timers.items()]),
            (PROCESSING_TIMER, [*self.processing_timers.items()]),
        )

    def restore_files(self, databases: Sequence[StoredDatabase]) -> None:
        """See ``KeyedBackend``. A single database with the task's own groups is adopted."""
        self._forget_cached()
        for database in databases:
            is_own = len(databases) == 1 and database.groups == self._groups
            folder = self._database.sibling("fetched")
            try:
                database.fetch(str(folder))
                self._load_files(folder, database, is_own and not self._database.has(b""))
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _load_files(self, folder: Path, database: StoredDatabase, adopts: bool) -> None:
        catalog = write_late_entries(folder)
        if not self._agree(catalog):
            self.restore(groups_in(folder, catalog, self._groups))
        elif adopts:
            self._database.adopt(folder)
            self._increments.restored(database.shared)
        else:
            for batch in entries_in(folder, self._groups):
                self._database.write(batch)

    def _agree(self, stored: DatabaseCatalog) -> bool:
        """Number states and classes as another database does; False: they have other numbers."""
        if stored.max_parallelism != self._max_parallelism:
            raise StateBroken(
                f"the files of a database were written with a maximum parallelism of "
                f"{stored.max_parallelism}, the job has {self._max_parallelism}; set it to "
                f"{stored.max_parallelism}"
            )
        names = {number: name for name, number in self._numbers.items()}
        for name, number in stored.numbers.items():
            if self._numbers.get(name, number) != number or names.get(number, name) != name:
                return False
        if not self._codec.agree(stored.classes):
            return False
        self._numbers.update(stored.numbers)
        for name, stored_as in stored.stored_as.items():
            self.catalog.restore(name, stored_as)
        self._resources.count_from(stored.next_number)
        return True

    def _forget_cached(self) -> None:
        for values in self._values.values():
            values.cache.flush()
            values.cache.drop(lambda cache_key: True)

    def restore(self, parts: Iterable[tuple[int, bytes]]) -> None:
        """See ``KeyedBackend``."""
        self._forget_cached()
        batch: list[WriteEntry] = []
        for group, data in parts:
            if group not in self._groups:
                continue
            for entry in read_group(group, self._max_parallelism, data):
                batch += self._restored(entry)
                if len(batch) >= BATCH:
                    self._database.write(batch)
                    batch = []
        if batch:
            self._database.write(batch)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for values in self._values.values():
            values.cache.close()
        self._database.close()

    def _restored(self, entry: Entry) -> Iterator[WriteEntry]:
        stored_as, name, namespace, plain, content = entry
        key = seen(plain)
        if stored_as == EVENT_TIMER:
            self.event_timers.register(content, key, namespace)
            return
        if stored_as == PROCESSING_TIMER:
            self.processing_timers.register(content, key, namespace)
            return
        self.catalog.restore(name, stored_as)
        address = self._codec.address(self._number(name), key, namespace)
        kind = stored_as.removesuffix(TTL)
        if kind == VALUE:
            yield address.prefix, address.head + pack(content)
            return
        self._database.remove(address.prefix)
        if kind == LIST:
            yield from list_entries(self._resources, address, content)
        else:
            for inner, value in content.items():
                db_key, head = entry_key(address, inner)
                yield db_key, head + pack(value)

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))


class RocksBackends:
    """See ``Backends``; one for each task manager, which closes it."""

    def __init__(self, settings: StateSettings) -> None:
        self._memory = SharedMemory(settings)
        self._budget = CacheBudget(self._memory.objects_bytes)
        self._folder = StateFolder(settings.rocksdb_folder)

    def keyed(self, operator: str, groups: range, max_parallelism: int) -> RocksBackend:
        """A fresh database; raises StateUnstorable."""
        database = Database(operator, self._folder.next_path(), self._memory)
        return RocksBackend(database, self._budget, groups, max_parallelism)

    def close(self) -> None:
        """Remove all databases that are left. Idempotent."""
        self._folder.close()
