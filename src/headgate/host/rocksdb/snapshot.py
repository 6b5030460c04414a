"""Snapshots of RocksDB state: taken at once, written group by group beside the task's work.

Law: a snapshot holds what the states held when it was taken: the database as it was, and over it
what stood in the caches only. The bytes are those of ``core/state/snapshot.py``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from headgate.base.checkpoints import Piece
from headgate.base.elements import Key, Record
from headgate.core.state.backend import Sieve, SnapshotFiles
from headgate.core.state.cursor import Namespace
from headgate.core.state.freezing import Frozen
from headgate.core.state.key_groups import key_group
from headgate.core.state.snapshot import LIST, VALUE, Entry, write_group
from headgate.host.rocksdb.cache import DirtyEntries, value_of
from headgate.host.rocksdb.codec import AddressCodec, StoredAddress, entry_of, unpack
from headgate.host.rocksdb.states import StoredValues, key_and_namespace

Timers: TypeAlias = tuple[tuple[str, list[tuple[int, Key, Namespace]]], ...]
"""Of each kind, all of them."""


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """What a backend hands to its snapshot; nothing of it changes any more."""

    groups: range
    max_parallelism: int
    names: Mapping[int, str]
    """Of the states, by their numbers."""
    stored_as: Mapping[str, str]
    sieves: Mapping[str, Sieve]
    unwritten: tuple[tuple[str, StoredValues, DirtyEntries], ...]
    """Name of a state, its values, and those that the database did not have."""
    timers: Timers


class RocksSnapshot:
    """See ``Snapshot``."""

    def __init__(
        self, moment: SnapshotSource, codec: AddressCodec, stored: Iterator[tuple[bytes, bytes]]
    ) -> None:
        """``stored``: the database as it is at this moment, in the order of its keys."""
        self._moment = moment
        self._codec = codec
        self._stored: Iterator[tuple[bytes, bytes]] = stored

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """Those that hold anything, in order."""
        moment = self._moment
        over = self._sort_unwritten()
        timers = timers_by_group(moment.timers, moment.max_parallelism)
        runs = groupby(self._addresses(), lambda found: found[0].group)
        run = next(runs, None)
        for group in moment.groups:
            stored: Iterable[list[StoredAddress]] = ()
            if run is not None and run[0] == group:
                stored = [*run[1]]
                run = next(runs, None)
            fresh = over.get(group, {})
            entries = [*self._sifted(self._entries(stored, fresh)), *timers.get(group, ())]
            if entries:
                yield group, write_group(group, moment.max_parallelism, entries)

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        """None: everything is in the groups."""
        return {}

    def close(self) -> None:
        """RocksDB may drop what only this snapshot holds. Idempotent."""
        self._stored = iter(())

    def _sort_unwritten(self) -> dict[int, dict[bytes, Entry | None]]:
        """Entries by group and database key; None: deleted."""
        found: dict[int, dict[bytes, Entry | None]] = {}
        moment = self._moment
        for name, values, unwritten in moment.unwritten:
            kind = moment.stored_as[name]
            for place, value in unwritten.items():
                prefix = values.address(place).prefix
                key, namespace = key_and_namespace(place)
                plain = key.key if type(key) is Frozen else key
                entry = None if value is None else (kind, name, namespace, plain, value_of(value))
                group = int.from_bytes(prefix[:2], "big")
                found.setdefault(group, {})[prefix] = entry
        return found

    def _sifted(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        sieves = self._moment.sieves
        for kind, name, namespace, key, content in entries:
            left = sieves[name](content) if name in sieves else content
            if left is not None or name not in sieves:
                yield kind, name, namespace, key, left

    def _entries(
        self, stored: Iterable[list[StoredAddress]], fresh: dict[bytes, Entry | None]
    ) -> Iterator[Entry]:
        moment = self._moment
        for places in stored:
            first = places[0]
            if first.prefix in fresh:
                continue
            name = moment.names[first.state]
            kind = moment.stored_as[name]
            yield kind, name, first.namespace, first.key, _content(kind, places)
        yield from (entry for entry in fresh.values() if entry is not None)

    def _addresses(self) -> Iterator[list[StoredAddress]]:
        """What is stored, the entries of each address together."""
        together: list[StoredAddress] = []
        for key, data in self._stored:
            one = self._codec.place(key, data)
            if together and together[0].prefix != one.prefix:
                yield together
                together = []
            together.append(one)
        if together:
            yield together


def timers_by_group(all_timers: Timers, max_parallelism: int) -> dict[int, list[Entry]]:
    """Timers as entries of a snapshot."""
    found: dict[int, list[Entry]] = {}
    for kind, timers in all_timers:
        for time_ms, key, namespace in timers:
            plain = key.key if type(key) is Frozen else key
            group = key_group(plain, max_parallelism)
            found.setdefault(group, []).append((kind, "", namespace, plain, time_ms))
    return found


def _content(kind: str, places: Iterable[StoredAddress]) -> Record:
    if kind.startswith(VALUE):
        return unpack(next(iter(places)).body)
    if kind.startswith(LIST):
        return [unpack(one.body) for one in places]
    pairs = (entry_of(one.rest, one.body) for one in places)
    return {key: unpack(body) for key, body in pairs}
