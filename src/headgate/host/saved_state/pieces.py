"""State of one operator of a checkpoint, in parts that can be read side by side, and its rows.

A part is a number of key groups, or a database with the groups of one task. It names the folder of
its checkpoint and can be sent to another process, which needs no metadata: a driver that has
checked the signature hands out digests with the pieces. Law: every entry of the operator is in one
part; reading holds one key group in memory, and of a database a few entries. A row shows the user's
own value: neither the time of the last touch that a time to live keeps beside it, nor what stands
for a result that is None.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headgate.base.checkpoints import CheckpointKind, Piece
from headgate.base.elements import Key, Record
from headgate.core.chain.keyed_context import EVENT_TIME
from headgate.core.chain.snapshots import unpack_parts
from headgate.core.operators.source_splits import saved_splits
from headgate.core.state.cursor import Namespace
from headgate.core.state.operator_state import BROADCAST, is_states, read_states
from headgate.core.state.snapshot import (
    EVENT_TIMER,
    NONE,
    PROCESSING_TIMER,
    TTL,
    Entry,
    Load,
    read_pieces,
)
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.location import CheckpointLocation, known_location
from headgate.host.checkpoints.pieces import PieceReader
from headgate.host.checkpoints.restoring import StoredDatabaseFiles

TIMERS: Final = (EVENT_TIMER, PROCESSING_TIMER)
"""Kinds of entries that are no state."""


class KeyedRow(NamedTuple):
    """What a state holds for a key, and for a window if it has one for each."""

    key: Key
    namespace: Namespace
    """The window; None: the state is that of the key alone."""
    value: Record
    """A list for a list state, a dict for a map state."""
    touched_ms: int | None = None
    """When a value with a time to live was touched last."""


class TimerRow(NamedTuple):
    """A timer that has not fired."""

    domain: str
    """``event`` or ``processing``."""
    time_ms: int
    key: Key
    namespace: Namespace


class OperatorRow(NamedTuple):
    """An element of a list, or an entry of a broadcast map, or a split of a source."""

    state: str
    kind: str
    subtask: int
    value: Record
    map_key: Record = None
    function: str = ""
    """Which of the operator's functions has it."""


def keyed_row(entry: Entry) -> KeyedRow:
    """An entry of a state as users know it."""
    kind, _, namespace, key, content = entry
    touched_ms = None
    if kind.endswith(TTL):
        if isinstance(content, list):
            content = [value for value, _ in content]
        elif isinstance(content, dict):
            content = {name: value for name, (value, _) in content.items()}
        else:
            content, touched_ms = content
    return KeyedRow(key, namespace, None if content is NONE else content, touched_ms)


def timer_row(entry: Entry) -> TimerRow:
    """An entry of a timer as users know it."""
    kind, _, namespace, key, time_ms = entry
    return TimerRow("event" if kind == EVENT_TIMER else "processing", time_ms, key, namespace)


def plain_rows(data: bytes, subtask: int, load: Load) -> Iterator[OperatorRow]:
    """Lists, broadcast maps and event time of a task; raises StateBroken."""
    for part, held in unpack_parts(data).items():
        if part == EVENT_TIME:
            yield OperatorRow(
                EVENT_TIME, "watermark", subtask, int.from_bytes(held, "little", signed=True)
            )
            continue
        if not is_states(held):
            yield OperatorRow(part, "records under way", subtask, held)
            continue
        for (kind, name), content in read_states(held, load).items():
            if kind == BROADCAST:
                for map_key, value in content.items():
                    yield OperatorRow(name, kind, subtask, value, map_key, part)
            else:
                for value in content:
                    yield OperatorRow(name, kind, subtask, value, None, part)


def split_rows(data: bytes, subtask: int, load: Load) -> Iterator[OperatorRow]:
    """Splits of a source that a task reads, with their positions; raises StateBroken."""
    for split, position, _ in saved_splits(data):
        at = load(position) if position else None
        yield OperatorRow("splits", "source", subtask, at, load(split) if split else None)


@dataclass(frozen=True, slots=True)
class CheckpointAddress:
    """Where another process finds a checkpoint whose metadata was read here."""

    uri: str
    kind: CheckpointKind
    checkpoint: int

    def location(self) -> CheckpointLocation:
        """Raises StorageUnusable."""
        return known_location(open_folder(self.uri), self.kind, self.checkpoint)


@dataclass(frozen=True, slots=True)
class KeyedPart:
    """Some of the keyed state and timers of an operator."""

    address: CheckpointAddress
    max_parallelism: int
    groups: Mapping[int, Piece] = field(default_factory=dict)
    """Key groups with what they hold."""
    database: Mapping[str, Piece] = field(default_factory=dict)
    """Files of a database by their local names."""
    database_groups: range = range(0)

    @property
    def size_bytes(self) -> int:
        pieces = (*self.groups.values(), *self.database.values())
        return sum(piece.length for piece in pieces)

    def pieces(self, load: Load) -> Iterator[tuple[int, int, list[Entry]]]:
        """Key group, bytes and entries, a few at a time; only ``load`` makes objects of pickles.

        Raises CheckpointError or StateBroken.
        """
        location = self.address.location()
        with PieceReader(location) as reader:
            for group, piece in self.groups.items():
                data = reader.read(piece)
                for size, entries in read_pieces(group, self.max_parallelism, data, load):
                    yield group, size, entries
        if self.database:
            files = StoredDatabaseFiles(location, self.database_groups, self.database, False)
            yield from files.pieces(self.database_groups, load)


@dataclass(frozen=True, slots=True)
class PlainPart:
    """What one task of an operator keeps without keys."""

    address: CheckpointAddress
    subtask: int
    plain: Piece | None
    source: Piece | None

    def rows(self, load: Load) -> Iterator[OperatorRow]:
        """Raises CheckpointError or StateBroken."""
        with PieceReader(self.address.location()) as reader:
            if self.plain is not None:
                yield from plain_rows(reader.read(self.plain), self.subtask, load)
            if self.source is not None:
                yield from split_rows(reader.read(self.source), self.subtask, load)
