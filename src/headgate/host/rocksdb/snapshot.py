"""Full snapshots of RocksDB state: taken at once, written group by group in the background.

Law: a snapshot holds what the states held when it was taken: the database as it was, overlaid with
what only the caches held. The bytes are those of ``core/state/snapshot.py``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from headgate.base.checkpoints import Piece
from headgate.base.elements import Key, Record
from headgate.base.moved import loads
from headgate.core.state.backend import Sieve, SnapshotFiles
from headgate.core.state.cursor import Namespace
from headgate.core.state.keys import Frozen, key_group
from headgate.core.state.snapshot import LIST, VALUE, Entry, Load, write_group
from headgate.host.rocksdb.cache import DirtyEntries, value_of
from headgate.host.rocksdb.codec import AddressCodec, StoredAddress, entry_of, unpack
from headgate.host.rocksdb.states import StoredValues, key_and_namespace

Timers: TypeAlias = tuple[tuple[str, list[tuple[int, Key, Namespace]]], ...]
"""All timers, by kind."""


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """What a backend hands to its snapshot; it does not change any more."""

    groups: range
    max_parallelism: int
    names: Mapping[int, str]
    """Names of states, by number."""
    stored_as: Mapping[str, str]
    sieves: Mapping[str, Sieve]
    unwritten: tuple[tuple[str, StoredValues, DirtyEntries], ...]
    """The name of a state, its values, and the entries that only its cache held."""
    timers: Timers


class RocksSnapshot:
    """See ``Snapshot``."""

    def __init__(
        self, source: SnapshotSource, codec: AddressCodec, stored: Iterator[tuple[bytes, bytes]]
    ) -> None:
        """``stored``: the entries of the database at this moment, by key."""
        self._source = source
        self._codec = codec
        self._stored: Iterator[tuple[bytes, bytes]] = stored

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """The non-empty ones, in order."""
        source = self._source
        over = self._sort_unwritten()
        timers = timers_by_group(source.timers, source.max_parallelism)
        runs = groupby(together(self._codec, self._stored), lambda found: found[0].group)
        run = next(runs, None)
        for group in source.groups:
            stored: Iterable[list[StoredAddress]] = ()
            if run is not None and run[0] == group:
                stored = [*run[1]]
                run = next(runs, None)
            fresh = over.get(group, {})
            entries = [*self._sifted(self._entries(stored, fresh)), *timers.get(group, ())]
            if entries:
                yield group, write_group(group, source.max_parallelism, entries)

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        """None: the groups hold everything."""
        return {}

    def close(self) -> None:
        """Let RocksDB drop what only this snapshot needs. Idempotent."""
        self._stored = iter(())

    def _sort_unwritten(self) -> dict[int, dict[bytes, Entry | None]]:
        """Cached entries by group and database key; None: deleted."""
        found: dict[int, dict[bytes, Entry | None]] = {}
        source = self._source
        for name, values, unwritten in source.unwritten:
            kind = source.stored_as[name]
            for cache_key, value in unwritten.items():
                prefix = values.address(cache_key).prefix
                key, namespace = key_and_namespace(cache_key)
                plain = key.key if type(key) is Frozen else key
                entry = None if value is None else (kind, name, namespace, plain, value_of(value))
                group = int.from_bytes(prefix[:2], "big")
                found.setdefault(group, {})[prefix] = entry
        return found

    def _sifted(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        sieves = self._source.sieves
        for kind, name, namespace, key, content in entries:
            left = sieves[name](content) if name in sieves else content
            if left is not None or name not in sieves:
                yield kind, name, namespace, key, left

    def _entries(
        self, stored: Iterable[list[StoredAddress]], fresh: dict[bytes, Entry | None]
    ) -> Iterator[Entry]:
        source = self._source
        for places in stored:
            first = places[0]
            if first.prefix in fresh:
                continue
            name = source.names[first.state]
            kind = source.stored_as[name]
            yield kind, name, first.namespace, first.key, content(kind, places)
        yield from (entry for entry in fresh.values() if entry is not None)


def together(
    codec: AddressCodec, stored: Iterable[tuple[bytes, bytes]]
) -> Iterator[list[StoredAddress]]:
    """Entries of a database, those of each address together."""
    found: list[StoredAddress] = []
    for key, data in stored:
        address = codec.decode(key, data)
        if found and found[0].prefix != address.prefix:
            yield found
            found = []
        found.append(address)
    if found:
        yield found


def timers_by_group(all_timers: Timers, max_parallelism: int) -> dict[int, list[Entry]]:
    """Timers as entries of a snapshot."""
    found: dict[int, list[Entry]] = {}
    for kind, timers in all_timers:
        for time_ms, key, namespace in timers:
            plain = key.key if type(key) is Frozen else key
            group = key_group(plain, max_parallelism)
            found.setdefault(group, []).append((kind, "", namespace, plain, time_ms))
    return found


def content(kind: str, entries: Iterable[StoredAddress], load: Load | None = None) -> Record:
    """What a state of this kind holds at one address."""
    if kind.startswith(VALUE):
        return unpack(next(iter(entries)).body, load)
    if kind.startswith(LIST):
        return [unpack(entry.body, load) for entry in entries]
    pairs = (entry_of(entry.rest, entry.body, load or loads) for entry in entries)
    return {key: unpack(body, load) for key, body in pairs}
