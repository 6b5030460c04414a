"""Opens a checkpoint or savepoint without a job: its operators, their states, and rows of them.

Law: what is read has the checksums that the metadata states, and the signature if a key is given;
rows come one after the other, so that memory is bounded by one key group, whatever the size of the
state. Values are loaded as ``loading`` says: without their classes, unless the caller trusts them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.base.checkpoints import (
    KEYED,
    OPERATOR,
    WINDOWED,
    Metadata,
    OperatorState,
    Piece,
    StateShape,
    TypeShape,
)
from headgate.base.elements import Key
from headgate.base.errors import StateUnknown
from headgate.base.recovery_settings import CheckpointSettings
from headgate.core.chain.keyed_context import KEYS
from headgate.core.state.cursor import Namespace, seen
from headgate.core.state.keys import groups_of
from headgate.core.state.snapshot import TTL, Entry, Load
from headgate.host.checkpoints.location import CheckpointLocation, resolve
from headgate.host.checkpoints.metadata import checkpoint_key
from headgate.host.saved_state.loading import SafeLoader, load_classes
from headgate.host.saved_state.pieces import (
    TIMERS,
    CheckpointAddress,
    KeyedPart,
    KeyedRow,
    OperatorRow,
    PlainPart,
    TimerRow,
    keyed_row,
    timer_row,
)
from headgate.plan.recorded_job import RecordedJob, RecordedOperator

PART_BYTES: Final = 4 << 20
"""How much keyed state one process reads in one go."""


@dataclass(slots=True)
class StateFigures:
    """What an operator keeps under one name, as far as it was counted."""

    name: str
    kind: str
    types: tuple[TypeShape | None, ...] = ()
    scope: str = KEYED
    entries: int = 0
    keys: int = 0
    size_bytes: float = 0.0
    """About: what stands together in a file is shared out evenly."""
    rows: list[KeyedRow | TimerRow] = field(default_factory=list)
    """The first ones, if they are wanted."""


class SavedOperator:
    """One operator of a checkpoint."""

    def __init__(self, saved: "SavedState", recorded: RecordedOperator) -> None:
        self._saved = saved
        self._recorded = recorded
        self.uid = recorded.uid
        self.name = recorded.name
        self.parallelism = recorded.vertex.parallelism
        self.max_parallelism = recorded.vertex.max_parallelism
        self.shapes: tuple[StateShape, ...] = recorded.shapes
        """Kinds and declared types of its states, as far as the checkpoint notes them."""

    @property
    def path(self) -> str:
        """Path of the checkpoint."""
        return self._saved.path

    @property
    def location(self) -> CheckpointLocation:
        """Where the checkpoint is."""
        return self._saved.location

    @property
    def load(self) -> Load:
        """What makes objects of its pickles."""
        return self._saved.load

    @property
    def size_bytes(self) -> int:
        return sum(piece.length for state in self._recorded.states for piece in _pieces(state))

    @property
    def is_keyed(self) -> bool:
        return self._recorded.is_keyed

    @property
    def has_state(self) -> bool:
        return self._recorded.has_state

    @property
    def key_type(self) -> TypeShape | None:
        """As ``key_by`` has declared it; None: it has not."""
        found = self._shape(KEYS, OPERATOR)
        return found.types[0] if found is not None and found.types else None

    def state_names(self) -> list[str]:
        """Names of keyed state that the checkpoint notes; older ones note none."""
        return [shape.name for shape in self.shapes if shape.scope in (KEYED, WINDOWED)]

    def notes(self, state: str) -> bool:
        """Whether the checkpoint notes a state of this name, with keys or without."""
        return any(shape.name == state and shape.scope != OPERATOR for shape in self.shapes)

    def shape(self, state: str) -> StateShape | None:
        """Kind and types of a keyed state, if they are noted."""
        return self._shape(state, KEYED) or self._shape(state, WINDOWED)

    def parts(self, part_bytes: int = PART_BYTES) -> list[KeyedPart]:
        """The keyed state and the timers in parts that other processes can read.

        Those of key groups have about ``part_bytes`` or more.
        """
        address, max_parallelism = self._saved.address, self.max_parallelism
        groups_left: list[tuple[int, Piece]] = []
        databases: list[KeyedPart] = []
        for subtask, state in enumerate(self._recorded.states):
            groups_left += state.keyed.items()
            if state.files:
                held = groups_of(subtask, self.parallelism, max_parallelism)
                databases.append(KeyedPart(address, max_parallelism, {}, dict(state.files), held))
        groups_left.sort(key=lambda item: (item[1].path, item[1].offset))
        parts: list[KeyedPart] = []
        chosen: dict[int, Piece] = {}
        size = 0
        for group, piece in groups_left:
            chosen[group] = piece
            size += piece.length
            if size >= part_bytes:
                parts.append(KeyedPart(address, max_parallelism, chosen))
                chosen, size = {}, 0
        if chosen:
            parts.append(KeyedPart(address, max_parallelism, chosen))
        return [*parts, *databases]

    def plain_parts(self) -> list[PlainPart]:
        """What it keeps without keys in parts, one for each task."""
        return [
            PlainPart(self._saved.address, subtask, state.plain, state.source)
            for subtask, state in enumerate(self._recorded.states)
            if state.plain is not None or state.source is not None
        ]

    def entries(self) -> Iterator[tuple[int, int, list[Entry]]]:
        """Everything by key, a few entries at a time: key group, bytes, entries."""
        for part in self.parts():
            yield from part.pieces(self._saved.load)

    def keyed(self, state: str) -> Iterator[KeyedRow]:
        """The rows of a keyed state; raises StateUnknown."""
        others: dict[str, None] = dict.fromkeys(self.state_names())
        is_there = state in others
        for _, _, entries in self.entries():
            for entry in entries:
                if entry[1] == state and entry[0] not in TIMERS:
                    is_there = True
                    yield keyed_row(entry)
                elif not is_there and entry[0] not in TIMERS:
                    others[entry[1]] = None
        if not is_there:
            raise self.unknown_state(state, [*others])

    def timers(self) -> Iterator[TimerRow]:
        """All timers, by key group."""
        for _, _, entries in self.entries():
            for entry in entries:
                if entry[0] in TIMERS:
                    yield timer_row(entry)

    def operator_state(self) -> Iterator[OperatorRow]:
        """What it keeps without keys: lists, broadcast maps, event time, splits of a source."""
        for part in self.plain_parts():
            yield from part.rows(self._saved.load)

    def figures(self, rows: int = 0) -> list[StateFigures]:
        """Every keyed state and the timers, counted, each with its first ``rows``.

        All keyed state of the operator is read for that.
        """
        found = {(shape.name, shape.scope): _figures(shape) for shape in self.shapes}
        found = {at: figures for at, figures in found.items() if at[1] in (KEYED, WINDOWED)}
        counter = _KeyCounter()
        for group, size, entries in self.entries():
            share = size / max(1, len(entries))
            for entry in entries:
                kind, name, namespace, key, _ = entry
                label = kind if kind in TIMERS else name
                scope = KEYED if namespace is None else WINDOWED
                at = label, scope
                if at not in found:
                    found[at] = StateFigures(label, kind.removesuffix(TTL), (), scope)
                figures = found[at]
                figures.entries += 1
                figures.size_bytes += share
                figures.keys += counter.is_new(group, at, namespace, key)
                if len(figures.rows) < rows:
                    figures.rows.append(timer_row(entry) if kind in TIMERS else keyed_row(entry))
        return [*found.values()]

    def unknown_state(self, state: str, others: Sequence[str]) -> StateUnknown:
        """The error for a state that is not there."""
        there = ", ".join(map(repr, others)) or "none"
        problem = f"operator {self.uid!r} has no keyed state {state!r}; it has {there}"
        return StateUnknown(self._saved.path, problem, "name one of them")

    def _shape(self, name: str, scope: str) -> StateShape | None:
        return next(
            (shape for shape in self.shapes if (shape.name, shape.scope) == (name, scope)), None
        )


class SavedState:
    """A checkpoint or savepoint that was opened; it holds no file open."""

    def __init__(self, location: CheckpointLocation, metadata: Metadata, load: Load) -> None:
        self.location = location
        self.metadata = metadata
        self.load = load
        self.address = CheckpointAddress(location.own.uri, metadata.kind, metadata.checkpoint)
        recorded = RecordedJob(metadata)
        self.operators = [SavedOperator(self, each) for each in recorded.operators.values()]

    @property
    def path(self) -> str:
        return self.location.shown

    @property
    def unloaded(self) -> list[str]:
        """Classes that were met and not loaded: their objects are shown by their parts."""
        return [*self.load.unknown] if isinstance(self.load, SafeLoader) else []

    def operator(self, uid: str = "", state: str = "") -> SavedOperator:
        """By uid or name; without one the only one that has state. Raises StateUnknown.

        ``state``: a name, by which an operator is found that alone has such a state.
        """
        for operator in self.operators:
            if operator.uid == uid:
                return operator
        named = [operator for operator in self.operators if operator.name == uid]
        if len(named) == 1:
            return named[0]
        stateful = [operator for operator in self.operators if operator.has_state]
        holding = [operator for operator in stateful if not uid and operator.notes(state)]
        found = holding or stateful
        if not uid and len(found) == 1:
            return found[0]
        there = ", ".join(f"{each.uid!r} ({each.name})" for each in found) or "none"
        if uid:
            problem = f"there is no operator {uid!r}; those with state are {there}"
        else:
            those = f"a state {state!r}" if holding else "state"
            problem = f"which operator? Those with {those} are {there}"
        advice = "name one by its uid"
        if found:
            example = found[0].uid
            advice += f": option('uid', {example!r}) of a table, or --uid {example}"
        raise StateUnknown(self.path, problem, advice)


def open_state(path: str, *, loads_classes: bool = False, secret_file: str = "") -> SavedState:
    """The checkpoint or savepoint in this folder; raises CheckpointError.

    ``loads_classes``: import the classes of values, as a restore does, which is for what you trust;
    ``secret_file``: the key of the job, to check the signature.
    """
    signing = checkpoint_key(CheckpointSettings(hmac_secret_file=secret_file))
    location, metadata = resolve(str(path), signing=signing)
    load: Load = load_classes if loads_classes else SafeLoader()
    return SavedState(location, metadata, load)


_TIMER_PLACES: Final = frozenset((kind, KEYED) for kind in TIMERS)


class _KeyCounter:
    """Counts keys. All entries of a key stand in one key group, so that one is kept at a time."""

    def __init__(self) -> None:
        self._group = -1
        self._seen: dict[object, set[Key]] = {}

    def is_new(self, group: int, state: object, namespace: Namespace, key: Key) -> bool:
        if namespace is None and state not in _TIMER_PLACES:
            return True
        if group != self._group:
            self._group, self._seen = group, {}
        known = self._seen.setdefault(state, set())
        before = len(known)
        known.add(seen(key))
        return len(known) > before


def _figures(shape: StateShape) -> StateFigures:
    return StateFigures(shape.name, shape.kind, shape.types, shape.scope)


def _pieces(state: OperatorState) -> list[Piece]:
    single = (state.plain, state.source, state.sink)
    return [*state.keyed.values(), *state.files.values(), *filter(None, single)]
