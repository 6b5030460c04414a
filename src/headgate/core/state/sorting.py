"""The key sorter: gathers all records of a batch and gives them back key by key.

Within a key records come in the order of their times, those of the same time (or without one) as
they were added. Law: what comes out is what was put in; of it no more than a limit is in memory,
the rest waits in sorted runs on disk.
"""

import pickle
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Key, Record
from headgate.base.settings import MIB
from headgate.base.spilling import SpillFile, SpillRoom
from headgate.core.state.keys import key_bytes

SORT_BYTES: Final = 64 * MIB
"""About so much of memory is used before a run is written."""

_CHUNK: Final = 512
"""Rows that are written and read at once."""
_OVERHEAD_BYTES: Final = 150
"""What a record takes in memory, beside itself."""
_LENGTH: Final = struct.Struct("<I")


class SortedRow(NamedTuple):
    """One record, where it came from and when."""

    time_ms: int
    """The smallest of all times if it has none."""
    place: int
    """Counts all records through: those of the same time keep their order."""
    number: int
    """Number of the input."""
    record: Record


_Stored: TypeAlias = tuple[bytes, int, int, int, Record, Key]
"""Bytes of the key, then the fields of a row, then the key itself."""


class KeySorter:
    """Told all records, it answers once with ``groups``. Keys are as the cursor holds them."""

    def __init__(self, room: SpillRoom | None = None, limit_bytes: int = SORT_BYTES) -> None:
        self._room = room
        self._limit_bytes = limit_bytes
        self._groups: dict[Key, list[SortedRow]] = {}
        self._bytes = 0
        self._count = 0
        self._runs: list[SpillFile] = []

    @property
    def runs(self) -> int:
        """How many are on disk."""
        return len(self._runs)

    def add(self, keys: Iterable[Key], bundle: Bundle, number: int) -> None:
        """Records of one input with their keys."""
        records, times = bundle.records, bundle.timestamps
        groups, count = self._groups, self._count
        for at, (key, record) in enumerate(zip(keys, records, strict=True)):
            time_ms = None if times is None else times[at]
            row = SortedRow(
                MIN_WATERMARK_MS if time_ms is None else time_ms, count + at, number, record
            )
            rows = groups.get(key)
            if rows is None:
                groups[key] = [row]
            else:
                rows.append(row)
        self._count = count + len(records)
        if self._room is not None and records:
            sample = len(pickle.dumps(records[0], 5))
            self._bytes += (sample + _OVERHEAD_BYTES) * len(records)
            if self._bytes > self._limit_bytes:
                self._spill(self._room)

    def groups(self) -> Iterator[tuple[Key, Iterator[SortedRow]]]:
        """Each key with its rows, which must be read before the next key is asked for."""
        if not self._runs:
            for key in list(self._groups):  # the first of a shrinking dictionary is hard to find
                yield key, iter(sorted(self._groups.pop(key)))
            return
        with ExitStack() as views:
            merged = merge(*(_read(run, views) for run in self._runs), self._in_order())
            for _, group in groupby(merged, key=itemgetter(0)):
                first = next(group)
                yield first[5], (SortedRow(*stored[1:5]) for stored in chain((first,), group))

    def close(self) -> None:
        """Give back memory and disk. Idempotent."""
        self._groups.clear()
        with ExitStack() as last:
            while self._runs:
                last.callback(self._runs.pop().close)

    def _spill(self, room: SpillRoom) -> None:
        run = room.open()
        self._runs.append(run)
        rows = self._in_order()
        while chunk := list(islice(rows, _CHUNK)):
            data = pickle.dumps(chunk, 5)
            run.write(memoryview(_LENGTH.pack(len(data))))
            run.write(memoryview(data))
        self._bytes = 0

    def _in_order(self) -> Iterator[_Stored]:
        """What is in memory, by bytes of the key and by time; then it is gone from there."""
        by_bytes: dict[bytes, list[Key]] = {}
        for key in self._groups:  # some that no dictionary takes for equal have the same bytes
            by_bytes.setdefault(key_bytes(key), []).append(key)
        for data in sorted(by_bytes):
            keys = by_bytes[data]
            rows = chain.from_iterable([self._groups.pop(key) for key in keys])
            for row in sorted(rows):  # places differ: records are not compared
                yield (data, *row, keys[0])


def _read(run: SpillFile, views: ExitStack) -> Iterator[_Stored]:
    view = views.enter_context(run.view())
    at = 0
    while at < len(view):
        (size,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        with view[at : at + size] as chunk:
            rows: list[_Stored] = pickle.loads(chunk)
        at += size
        yield from rows
