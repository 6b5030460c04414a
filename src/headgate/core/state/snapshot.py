"""A key group of a snapshot as bytes: the one form that every backend writes and reads.

A header (magic, version, group, number of groups, number of entries, checksum of what follows),
then pieces: a length, and a pickled list of entries. Law: the entries that are read are those that
were written, in their order. Bytes that were cut or changed, or that belong elsewhere, are refused
before the first entry is given.
"""

import pickle
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Final, TypeAlias

from headgate.base.elements import LENGTH, Key, PickleSerializer, Record
from headgate.base.errors import HeadgateError, StateBroken
from headgate.base.moved import loads
from headgate.core.state.cursor import Namespace

VALUE: Final = "value"


LIST: Final = "list"


MAP: Final = "map"


TTL: Final = " with time to live"
"""Added to one of the three: each value is a pair of itself and when it was touched last (ms)."""


EVENT_TIMER: Final = "event-time timer"


PROCESSING_TIMER: Final = "processing-time timer"


_ENTRY_FIELDS: Final = 5


Entry: TypeAlias = tuple[str, str, Namespace, Key, Record]
"""Kind, name of the state, namespace, key as the selector returned it, and the content.

The content is a value, a list, a dict, or for a timer, whose name is empty, its time.
"""


Load: TypeAlias = Callable[[bytes | memoryview], Record]
"""Makes an object of a pickle; a restore loads whatever class it names."""


VERSION: Final = 1


_MAGIC: Final = b"HgKG"


_HEADER: Final = struct.Struct("<4sBHHQI")


_PIECE_ENTRIES: Final = 256


class Folded(Enum):
    """Stands for a result that is None, since a value state that holds None holds nothing."""

    NONE = 0

    def __setstate__(self, state: object) -> None:
        raise TypeError("a pickle cannot change what stands for None")


NONE: Final = Folded.NONE


class GroupWriter:
    """Turns the entries of one key group into bytes, a piece at a time."""

    def __init__(self, group: int, max_parallelism: int) -> None:
        self._group = group
        self._max_parallelism = max_parallelism
        self._entries: list[Entry] = []
        self._pieces: list[bytes] = []
        self._count = 0
        self._checksum = 0
        self._pickler = PickleSerializer()

    def add(self, entry: Entry) -> None:
        """Raises StateBroken if an entry cannot be pickled, not necessarily this one."""
        self._entries.append(entry)
        if len(self._entries) == _PIECE_ENTRIES:
            self._close_piece()

    def finish(self) -> bytes:
        """The whole group; the writer is used up."""
        if self._entries:
            self._close_piece()
        header = _HEADER.pack(
            _MAGIC, VERSION, self._group, self._max_parallelism, self._count, self._checksum
        )
        return b"".join([header, *self._pieces])

    def _close_piece(self) -> None:
        try:
            body = self._pickler.dumps(self._entries)
        except Exception as error:
            raise _unpicklable(self._entries, error) from error
        for part in (LENGTH.pack(len(body)), body):
            self._pieces.append(part)
            self._checksum = zlib.crc32(part, self._checksum)
        self._count += len(self._entries)
        self._entries.clear()


def write_group(group: int, max_parallelism: int, entries: Iterable[Entry]) -> bytes:
    """The bytes of one group; raises StateBroken if an entry cannot be pickled."""
    writer = GroupWriter(group, max_parallelism)
    for entry in entries:
        writer.add(entry)
    return writer.finish()


def read_group(group: int, max_parallelism: int, data: bytes) -> Iterator[Entry]:
    """The entries of one group; raises StateBroken."""
    pieces = read_pieces(group, max_parallelism, data)
    return chain.from_iterable(entries for _, entries in pieces)


def read_pieces(
    group: int, max_parallelism: int, data: bytes, load: Load = loads
) -> Iterator[tuple[int, list[Entry]]]:
    """The pieces of one group: how many bytes each has, and its entries; raises StateBroken."""
    where = f"the snapshot of key group {group}"
    if len(data) < _HEADER.size:
        raise StateBroken(f"{where} has {len(data)} bytes and no whole header")
    magic, version, found, groups, count, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise StateBroken(f"{where} does not begin as one: {magic!r}")
    if version != VERSION:
        raise StateBroken(
            f"{where} has the version {version}, this side reads {VERSION}; install the Headgate "
            f"that wrote it"
        )
    if found != group:
        raise StateBroken(f"{where} holds key group {found}")
    if groups != max_parallelism:
        raise StateBroken(
            f"{where} was written with a maximum parallelism of {groups}, the job has "
            f"{max_parallelism}; set it to {groups}"
        )
    body = memoryview(data)[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise StateBroken(f"{where} was cut or changed: its checksum is wrong")
    return _pieces(where, body, count, load)


def _pieces(
    where: str, body: memoryview, count: int, load: Load
) -> Iterator[tuple[int, list[Entry]]]:
    start = seen = 0
    while start < len(body):
        try:
            (length,) = LENGTH.unpack_from(body, start)
            start += LENGTH.size
            piece = load(body[start : start + length])
        except HeadgateError:
            raise
        except (Exception, SystemExit) as error:  # a pickle can raise anything
            raise StateBroken(
                f"{where} cannot be read ({type(error).__name__}: {error}); the classes of the "
                f"values must still be there under their old names"
            ) from error
        if not isinstance(piece, list) or not _are_entries(piece):
            raise StateBroken(f"{where} holds {type(piece).__name__} that is no list of entries")
        start += length
        seen += len(piece)
        yield length, piece
    if seen != count:
        raise StateBroken(f"{where} holds {seen} entries instead of {count}")


def _are_entries(things: list[Record]) -> bool:
    """Without a call for each."""
    return {*map(type, things)} <= {tuple} and {*map(len, things)} <= {_ENTRY_FIELDS}


def _unpicklable(entries: list[Entry], error: Exception) -> StateBroken:
    for kind, name, _, key, content in entries:
        try:
            pickle.dumps(content, 5)
            pickle.dumps(key, 5)
        except Exception as problem:
            return StateBroken(
                f"the state {name!r} ({kind}) of the key {key!r} cannot be written to a snapshot "
                f"({type(problem).__name__}: {problem}); keys and values must be picklable"
            )
    return StateBroken(f"state cannot be written to a snapshot ({type(error).__name__}: {error})")
