"""What one operator has in a checkpoint, merged with the changes that were asked for.

Law: a key group that no change touches keeps its bytes; in one that is rewritten every entry that
is not changed stays as it was, which needs its classes: an entry of a class that was not loaded is
refused, never written in another form. Memory is bounded by one key group and by ``HELD`` changes;
more of them are sorted into key groups on disk (``GroupSpool``).
"""

import pickle
import tempfile
from collections.abc import Iterator
from itertools import groupby
from typing import IO, Any, Final

from headgate.base.checkpoints import FUNCTION, KEYED, OPERATOR, OperatorState, Piece, StateShape
from headgate.base.errors import HeadgateError, StateUnfit
from headgate.core.chain.keyed_context import KEYS
from headgate.core.chain.snapshots import pack_parts, unpack_parts
from headgate.core.state.cursor import seen
from headgate.core.state.keys import key_group
from headgate.core.state.migration import shape_of, types_of
from headgate.core.state.operator_state import BROADCAST, SPLIT, UNION, read_states, write_states
from headgate.core.state.snapshot import Entry, Load, read_pieces, write_group
from headgate.host.checkpoints.folder import storage_errors
from headgate.host.checkpoints.pieces import PartWriter, PieceReader
from headgate.host.checkpoints.restoring import StoredDatabaseFiles
from headgate.host.saved_state.changes import (
    ChangedRows,
    Mode,
    OperatorChanges,
    StateChange,
    declared_type,
    stored_as,
)
from headgate.host.saved_state.loading import SafeLoader, load_classes
from headgate.host.saved_state.pieces import TIMERS
from headgate.host.saved_state.reader import SavedOperator

PART: Final = "function"
"""Under which an operator keeps the state of its only function."""

Pieces = dict[int, Piece]
HELD: Final = 200_000
"""Entries in memory at a time."""


class OperatorMerge:
    """For one operator; a context manager. ``base`` is None: there is nothing yet."""

    def __init__(
        self, changes: OperatorChanges, base: SavedOperator | None, max_parallelism: int = 0
    ) -> None:
        self._changes = changes
        self._base = base
        self._groups = max_parallelism if base is None else base.max_parallelism
        is_safe = base is None or isinstance(base.load, SafeLoader)
        self._load: Load = SafeLoader() if is_safe else load_classes  # it notes what is rewritten
        key_type = self._key_type()
        self.shapes = self._shapes(key_type)
        self._rows = ChangedRows(changes.uid, key_type)
        self._cleared = [change.state for change in changes.keyed if change.clears]
        self._spool = GroupSpool(self._groups)
        try:
            self._gather()
            self._plain = {
                (change.kind, change.descriptor.name): self._rows.plain(change)
                for change in changes.plain
            }
        except BaseException:
            self._spool.close()
            raise

    def __enter__(self) -> "OperatorMerge":
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.close()

    # What fits.

    def _key_type(self) -> Any:
        given, base = self._changes.key_type, self._base
        known = None if base is None else base.key_type
        if given is None:
            return declared_type(known)
        if known is not None and shape_of(given) != known:
            problem = f"its keys are {known} there, and not {given!r}; leave key_type out"
            raise StateUnfit(self._changes.uid, "", problem)
        return given

    def _shapes(self, key_type: object) -> tuple[StateShape, ...]:
        base = self._base
        found = {} if base is None else {(each.scope, each.name): each for each in base.shapes}
        if self._changes.keyed:
            key = StateShape(KEYS, "key", (shape_of(key_type),), OPERATOR)
            if base is None or (OPERATOR, KEYS) not in found or key_type is not None:
                found[OPERATOR, KEYS] = key
        for change in self._changes.keyed:
            at = KEYED, change.state
            if change.mode in (Mode.REMOVE, Mode.REMOVE_ALL) and change.state and at not in found:
                self._expect_stored(change.state)
            if change.mode is Mode.REMOVE_ALL:
                found.pop(at, None)
            if change.descriptor is None:
                continue
            types = tuple(map(shape_of, types_of(change.descriptor)))
            shape = StateShape(change.state, change.descriptor.kind, types, KEYED)
            self._check_kind(change, shape, found.get(at))
            found[at] = shape
        for plain in self._changes.plain:
            types = tuple(map(shape_of, types_of(plain.descriptor)))
            shape = StateShape(plain.descriptor.name, plain.kind, types, f"{FUNCTION}{PART}")
            found[shape.scope, shape.name] = shape
        return (*found.values(),)

    def _check_kind(
        self, change: StateChange, shape: StateShape, before: StateShape | None
    ) -> None:
        if change.mode is not Mode.PUT or self._base is None:
            return
        assert change.descriptor is not None
        if before is not None and (before.kind, before.types) != (shape.kind, shape.types):
            self._refuse(change.state, f"it is {before} there and {shape} here")
        stored, wanted = self._stored(change.state), stored_as(change.descriptor)
        if stored not in (None, wanted):
            self._refuse(change.state, f"it is stored as a {stored} there and as a {wanted} here")

    def _refuse(self, state: str, problem: str) -> None:
        advice = "give the descriptor that the job has, or replace() the whole state"
        raise StateUnfit(self._changes.uid, state, f"{problem}; {advice}")

    def _expect_stored(self, state: str) -> None:
        """What is to be removed is not noted: a state of an older version, or a wrong name."""
        base = self._base
        if base is None:
            raise StateUnfit(self._changes.uid, state, "there is nothing to remove; leave that out")
        if self._stored(state) is None:
            raise base.unknown_state(state, base.state_names())

    def _stored(self, state: str) -> str | None:
        assert self._base is not None
        for _, _, entries in self._base.entries():
            for entry in entries:
                if entry[1] == state and entry[2] is None and entry[0] not in TIMERS:
                    return entry[0]
        return None

    def _gather(self) -> None:
        changes = self._changes.keyed
        for place, change in enumerate(changes, 1):
            is_undone = any(
                later.clears and later.state == change.state for later in changes[place:]
            )
            if change.mode is not Mode.REMOVE_ALL and not is_undone:
                for entry in self._rows.entries(change):
                    self._add(change, entry)

    def _add(self, change: StateChange, entry: Entry) -> None:
        try:
            self._spool.add(entry)
        except HeadgateError:
            raise
        except Exception as error:  # a key that cannot be hashed or pickled
            problem = f"the key {entry[3]!r:.200} cannot be used ({type(error).__name__}: {error})"
            raise StateUnfit(self._changes.uid, change.state, problem) from error

    # Keyed state.

    def keyed(
        self, state: OperatorState, own: range, reader: PieceReader | None, writer: PartWriter
    ) -> tuple[Pieces, dict[str, Piece]]:
        """The pieces of one task, and the files of its database if it keeps that."""
        touched = {group for group in self._spool.groups if group in own}
        rewrites = bool(self._cleared) or (bool(state.files) and bool(touched))
        if not rewrites and state.files:
            assert reader is not None
            files = {name: writer.append(reader.read(piece)) for name, piece in state.files.items()}
            return {g: writer.append(reader.read(p)) for g, p in state.keyed.items()}, files
        keyed: Pieces = {}
        for group, entries in self._before(state, own, reader, touched, rewrites):
            if isinstance(entries, bytes):
                keyed[group] = writer.append(entries)
            elif data := self._merged(group, entries):
                keyed[group] = writer.append(data)
        for group in sorted(touched - {*keyed}):
            if data := self._merged(group, []):
                keyed[group] = writer.append(data)
        return keyed, {}

    def _before(
        self,
        state: OperatorState,
        own: range,
        reader: PieceReader | None,
        touched: set[int],
        rewrites: bool,
    ) -> Iterator[tuple[int, bytes | list[Entry]]]:
        """What the base has: entries of groups that are rewritten, bytes of the others."""
        if reader is None:
            return
        left = dict(sorted(state.keyed.items()))
        for group, entries in self._in_database(state, own):
            timers = left.pop(group, None)
            yield group, [*entries, *(self._entries(group, timers, reader) if timers else ())]
        for group, piece in left.items():
            if rewrites or group in touched:
                yield group, self._entries(group, piece, reader)
            else:
                yield group, reader.read(piece)

    def _in_database(self, state: OperatorState, own: range) -> Iterator[tuple[int, list[Entry]]]:
        if not state.files:
            return
        assert self._base is not None
        files = StoredDatabaseFiles(self._base.location, own, state.files, False)
        pieces = files.pieces(own, self._load)
        for group, found in groupby(pieces, key=lambda piece: piece[0]):
            entries = [entry for _, _, held in found for entry in held]
            self._check_loaded()
            yield group, entries

    def _entries(self, group: int, piece: Piece, reader: PieceReader) -> list[Entry]:
        pieces = read_pieces(group, self._groups, reader.read(piece), self._load)
        entries = [entry for _, held in pieces for entry in held]
        self._check_loaded()
        return entries

    def _check_loaded(self) -> None:
        unknown = self._load.unknown if isinstance(self._load, SafeLoader) else {}
        if unknown:
            raise StateUnfit(
                self._changes.uid,
                "",
                f"what stays as it is has values of {next(iter(unknown))}, whose class is not "
                f"loaded; if you trust the savepoint, write with load_classes=True",
            )

    def _merged(self, group: int, before: list[Entry]) -> bytes:
        """The group with its changes; empty: it holds nothing."""
        places: dict[Any, Entry] = {}
        for entry in before:
            if entry[2] is not None or self._name(entry) not in self._cleared:
                places[_place(entry)] = entry
        for entry in self._spool.take(group):
            self._change(places, entry)
        entries = places.values()
        return write_group(group, self._groups, entries) if entries else b""

    def _change(self, places: dict[Any, Entry], entry: Entry) -> None:
        place, content = _place(entry), entry[4]
        if content is not None and isinstance(content, dict) and entry[0].startswith("map"):
            before = places.get(place)
            held = {**before[4]} if before is not None else {}
            for key, value in content.items():
                if value is None:
                    held.pop(key, None)
                else:
                    held[key] = value
            content = held or None
        if content is None:
            places.pop(place, None)
        else:
            places[place] = (*entry[:4], content)

    @staticmethod
    def _name(entry: Entry) -> str:
        return "" if entry[0] in TIMERS else entry[1]

    # State without keys.

    def plain(
        self,
        state: OperatorState,
        subtask: int,
        parallelism: int,
        reader: PieceReader | None,
        writer: PartWriter,
    ) -> tuple[Piece | None, bool]:
        """The piece of one task, and whether a task needs its own alone."""
        data = reader.read(state.plain) if reader is not None and state.plain is not None else b""
        if not self._plain:
            return (writer.append(data) if data else None), state.plain_is_own
        parts = unpack_parts(data) if data else {}
        names = {name for _, name in self._plain}
        held = read_states(parts[PART], self._load) if PART in parts else {}
        self._check_loaded()
        kept = [
            (kind, name, content) for (kind, name), content in held.items() if name not in names
        ]
        made = [
            (kind, name, _share(kind, content, subtask, parallelism))
            for (kind, name), content in self._plain.items()
        ]
        parts[PART] = write_states([*kept, *made])
        packed = pack_parts(parts)
        assert packed is not None
        is_own = state.plain_is_own or not data  # other functions of the operator may have unions
        return writer.append(packed), is_own and all(kind != UNION for kind, _, _ in [*kept, *made])


def _place(entry: Entry) -> Any:
    kind, name, namespace, key, content = entry
    if kind in TIMERS:
        return kind, content, namespace, seen(key)
    return name, namespace, seen(key)


def _share(kind: str, content: Any, subtask: int, parallelism: int) -> Any:
    """What one of several tasks keeps of a list or a map."""
    if kind == BROADCAST:
        return content
    if kind == SPLIT:
        count = len(content)
        return content[count * subtask // parallelism : count * (subtask + 1) // parallelism]
    return content if subtask == 0 else []


class GroupSpool:
    """For one operator; a context manager."""

    def __init__(self, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._groups: dict[int, list[Entry]] = {}
        self._held = 0
        self._file: IO[bytes] | None = None
        self._places: dict[int, list[tuple[int, int]]] = {}

    def add(self, entry: Entry) -> None:
        """Raises StorageUnusable if the temporary folder is full."""
        group = key_group(entry[3], self._max_parallelism)
        self._groups.setdefault(group, []).append(entry)
        self._held += 1
        if self._held >= HELD:
            self._spill()

    @property
    def groups(self) -> set[int]:
        """Key groups that have entries."""
        return {*self._groups, *self._places}

    def take(self, group: int) -> Iterator[Entry]:
        """The entries of a group."""
        for start, length in self._places.pop(group, ()):
            assert self._file is not None
            with storage_errors(tempfile.gettempdir()):
                self._file.seek(start)
                data = self._file.read(length)
            yield from pickle.loads(data)
        yield from self._groups.pop(group, ())

    def close(self) -> None:
        """Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> "GroupSpool":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _spill(self) -> None:
        with storage_errors(tempfile.gettempdir()):
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="headgate-savepoint-")  # noqa: SIM115
            for group, entries in self._groups.items():
                data = pickle.dumps(entries, 5)
                start = self._file.seek(0, 2)
                self._file.write(data)
                self._places.setdefault(group, []).append((start, len(data)))
        self._groups, self._held = {}, 0
