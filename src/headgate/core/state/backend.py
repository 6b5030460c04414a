"""The state backend: where the keyed state and the timers of one operator of one task live.

Two implement this protocol: in memory, and on disk. An operator opens one in ``open``
and closes it in ``close``; ``snapshot`` and ``restore`` go by key group, so that another number of
tasks can share the groups anew. What one backend has written any other can read (``snapshot.py``),
also if it was written as files of a database, of which later snapshots write only new ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from headgate.base.checkpoints import Piece
from headgate.base.elements import ByteLike, Key, Record
from headgate.base.errors import StateBroken
from headgate.core.state.cursor import Cursor, Namespace
from headgate.core.state.snapshot import TTL
from headgate.core.state.tables import Spaces
from headgate.core.state.timers import TimerQueue
from headgate.functions.state import ListState, MapState, State, ValueState

Sieve: TypeAlias = Callable[[Record], Record]
"""Takes what a state holds at a key, answers with what is left of it; None: nothing."""

Sweep: TypeAlias = Callable[[int], None]
"""Looks for expired entries; called for each bundle with the number of its records."""


class ValueTooLarge(Exception):
    """What a state holds at a key is too much to be given to somebody outside of the task."""


@dataclass(frozen=True, slots=True)
class StateSpec:
    """What a backend must know about a state. The name is unique within the operator."""

    name: str
    kind: str
    """``value``, ``list`` or ``map``."""
    namespaced: bool = False
    """True: there is one for each key and namespace; False: the namespace is always None.

    One of each may have the same name: a function's state and that of its windows.
    """
    has_ttl: bool = False
    """Values are pairs of themselves and when they were touched; the backend need not care."""
    sieve: Callable[[], Sieve] | None = field(default=None, compare=False)
    """If given: asked for when a snapshot is taken, it lets through what has not expired."""

    @property
    def stored_as(self) -> str:
        """The kind of the state's entries in a snapshot."""
        return self.kind + TTL if self.has_ttl else self.kind


class Catalog:
    """How the states of a backend are stored, by name; restored ones before they are opened, too.

    Law: a name stands for one kind of state.
    """

    def __init__(self) -> None:
        self.stored_as: dict[str, str] = {}
        self._restored: dict[str, None] = {}
        self._sieves: dict[str, Callable[[], Sieve]] = {}

    def open(self, spec: StateSpec) -> None:
        """A state is asked for; raises ValueError if it is another kind."""
        self._enter(spec.name, spec.stored_as)
        if spec.sieve is not None:
            self._sieves[spec.name] = spec.sieve

    def restore(self, name: str, stored_as: str) -> None:
        """A snapshot holds entries of this state; raises StateBroken if it is another kind."""
        try:
            self._enter(name, stored_as)
        except ValueError as error:
            raise StateBroken(str(error)) from None
        self._restored[name] = None

    def restored_as(self, name: str) -> str | None:
        """How a state is stored of which a snapshot held entries; None: none did."""
        return self.stored_as[name] if name in self._restored else None

    def rewritten(self, name: str, stored_as: str) -> None:
        """All entries of a restored state have another form now."""
        self.stored_as[name] = stored_as

    def sieves(self) -> dict[str, Sieve]:
        """For the snapshot that is taken at this moment."""
        return {name: sieve() for name, sieve in self._sieves.items()}

    def _enter(self, name: str, stored_as: str) -> None:
        known = self.stored_as.setdefault(name, stored_as)
        if known != stored_as:
            raise ValueError(
                f"the state {name!r} is there as a {known} and cannot be used as a {stored_as}; "
                f"give it another name"
            )


class SnapshotFiles(Protocol):
    """The part of one task in the storage of a checkpoint."""

    def append(self, *parts: ByteLike) -> Piece:
        """Bytes that belong to this checkpoint alone."""

    def share(self, path: str) -> Piece:
        """The copy of a local file; later checkpoints may name it when this one is complete."""


class StoredDatabase(Protocol):
    """The files of a database that a snapshot has left in the storage."""

    @property
    def groups(self) -> range:
        """The key groups that it held."""

    @property
    def shared(self) -> Mapping[str, Piece]:
        """Files, by their local names, that the next snapshots may name again."""

    def fetch(self, folder: str) -> None:
        """Copy everything to a new local folder; raises CheckpointError."""

    def read(self, groups: range) -> Iterator[tuple[int, bytes]]:
        """Read the non-empty ones among these key groups, in the form that every backend reads."""


class Snapshot(Protocol):
    """State as it was at one moment. Writing it out may go on beside the task's work."""

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """Key group and its bytes, for every group that holds anything; asked for once.

        This is the long part; it may run in another thread than the task's.
        """

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        """Write what is left as files of a database, by their local names; as ``groups``, once."""

    def close(self) -> None:
        """No longer needed, written or not. Idempotent; on the task's thread."""


class KeyedBackend(Protocol):
    """State, timers and cursor of one operator of one task."""

    cursor: Cursor
    event_timers: TimerQueue
    processing_timers: TimerQueue
    catalog: Catalog
    sweeps: list[Sweep]
    """Sweeps of states that clean up for every record, also for those that do not touch them."""

    def value_state(self, spec: StateSpec) -> ValueState[Record]: ...

    def list_state(self, spec: StateSpec) -> ListState[Record]: ...

    def map_state(self, spec: StateSpec) -> MapState[Record, Record]: ...

    def direct(self, spec: StateSpec) -> Spaces | None:
        """Values by namespace and key, for operators that work on many at once; None: not here.

        Views are looked up anew in each bundle, or bound: a snapshot may have put another in their
        place. Entries of namespaces and values are always looked up anew.
        """

    def places(self, spec: StateSpec) -> Iterator[tuple[Namespace, Key]]:
        """Where the state holds something; entries may be changed and removed meanwhile.

        Keys are as the cursor holds them. What is added meanwhile may be left out.
        """

    def read(self, name: str, kind: str, key: Key, most_bytes: int) -> Record:
        """What a state without namespaces holds at a key, as a snapshot would; None: nothing.

        The key is as the cursor would hold it. Nothing is changed, neither the cursor nor a cache,
        and the answer may be what the backend itself holds. Raises ValueTooLarge if a list or map
        on disk is longer than so many bytes.
        """

    def forget_key(self) -> None:
        """Drop everything of the cursor's key: states of all namespaces, and timers."""

    def snapshot(self, increment: int | None = None) -> Snapshot:
        """State and timers as they are now. Short; several may be open at a time.

        ``increment``: the checkpoint that it is for, if it may name files of earlier ones again.
        """

    def checkpoint_completed(self, checkpoint: int) -> None:
        """What was written for it is there for good, and may be named by later ones."""

    def checkpoint_aborted(self, checkpoint: int) -> None:
        """What was written for it is gone."""

    def restore(self, parts: Iterable[tuple[int, bytes]]) -> None:
        """Take over key groups; called before the first record, any number of times.

        Groups that the task does not own are passed over, so that all parts of an old job can be
        offered to every task of a rescaled one. Raises StateBroken.
        """

    def restore_files(self, databases: "Sequence[StoredDatabase]") -> None:
        """Take over what databases hold of the task's key groups; before ``restore``, once.

        Raises StateBroken or CheckpointError.
        """

    def size_bytes(self) -> int | None:
        """About the bytes that it holds; None: that would have to be counted. Short."""

    def close(self) -> None:
        """Give back everything. Idempotent."""


class Backends(Protocol):
    """Makes backends; the task manager has one kind, as the settings say."""

    def keyed(self, operator: str, groups: range, max_parallelism: int) -> KeyedBackend:
        """For an operator (by uid) of a task that owns these key groups."""


def state_of(backend: KeyedBackend, spec: StateSpec) -> State:
    """The state of a backend that a spec describes."""
    match spec.kind:
        case "list":
            return backend.list_state(spec)
        case "map":
            return backend.map_state(spec)
        case _:
            return backend.value_state(spec)
