"""Entries of keyed state that open snapshots share: reading a shared value hands out a copy of it.

A snapshot takes a shallow copy, so both sides refer to the same values. Law: what a snapshot holds
does not change, whatever is done to values that were read after it was taken. A table shows its
entries as a *view*: the dictionary itself while no snapshot is open, so that reading costs nothing
more, and a guard in front of it while one is. Whoever keeps the view is bound to the table, which
hands it the new one; both happen between bundles.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, MutableMapping
from typing import Final, Protocol, TypeAlias, TypeVar

from headgate.base.elements import Key, Record
from headgate.base.errors import StateBroken
from headgate.base.values import ATOMS, own
from headgate.core.state.cursor import Namespace

Held: TypeAlias = dict[Key, Record]
"""What a snapshot holds of a table; nobody changes it."""

Entries: TypeAlias = MutableMapping[Key, Record]
"""What a table shows: valid until the end of the bundle, unless its user is bound."""


class Bound(Protocol):
    """Works on a view for longer than a bundle."""

    def bind(self, view: Entries, /) -> None:
        """Use this one from now on."""


B = TypeVar("B", bound=Bound)


class Table:
    """Entries by key. ``copied`` makes the copy of a value that is shared."""

    __slots__ = ("_bound", "_copied", "_shared", "entries", "view")

    def __init__(self, copied: Callable[[Record], Record] = own) -> None:
        self.entries: Held = {}
        """Without a guard: for keys, and where nobody changes the values."""
        self.view: Entries = self.entries
        self._copied = copied
        self._shared: dict[int, Held] = {}
        self._bound: list[Bound] = []

    def bound(self, user: B) -> B:
        """The user, which has the current view now, and gets every later one."""
        self._bound.append(user)
        user.bind(self.view)
        return user

    def freeze(self, number: int) -> Held:
        """The entries as they are now, for the snapshot of this number."""
        frozen = self._shared[number] = self.entries.copy()
        if len(self._shared) == 1:
            self._show(GuardedEntries(self.entries, self._shared, self._copied))
        return frozen

    def thaw(self, number: int) -> None:
        """The snapshot is closed. Nothing happens if it shared nothing."""
        if self._shared.pop(number, None) is not None and not self._shared:
            self._show(self.entries)

    def _show(self, view: Entries) -> None:
        self.view = view
        for user in self._bound:
            user.bind(view)


class Guard(MutableMapping[Key, Record]):
    """Stands in front of a dictionary: whatever hands out a value asks ``_mine`` for it first."""

    __slots__ = ("guarded",)

    def __init__(self, guarded: dict[Key, Record]) -> None:
        self.guarded = guarded

    @abstractmethod
    def _mine(self, key: Key, value: Record) -> Record:
        """The value, or what has taken its place because a snapshot shares it."""

    def __getitem__(self, key: Key) -> Record:
        return self._mine(key, self.guarded[key])

    def get(self, key: Key, default: Record = None) -> Record:
        value = self.guarded.get(key, _NOTHING)
        return default if value is _NOTHING else self._mine(key, value)

    def pop(self, key: Key, *default: Record) -> Record:
        if key in self.guarded:
            self._mine(key, self.guarded[key])
        return self.guarded.pop(key, *default)

    def __setitem__(self, key: Key, value: Record) -> None:
        self.guarded[key] = value

    def __delitem__(self, key: Key) -> None:
        del self.guarded[key]

    def __contains__(self, key: object) -> bool:
        return key in self.guarded

    def __iter__(self) -> Iterator[Key]:
        return iter(self.guarded)

    def __len__(self) -> int:
        return len(self.guarded)

    def clear(self) -> None:
        self.guarded.clear()


class GuardedEntries(Guard):
    """Entries whose values the open snapshots share, by the snapshots' numbers."""

    __slots__ = ("_copied", "shared")

    def __init__(
        self, entries: Held, shared: dict[int, Held], copied: Callable[[Record], Record] = own
    ) -> None:
        super().__init__(entries)
        self.shared = shared
        self._copied = copied

    def get(self, key: Key, default: Record = None) -> Record:
        value = self.guarded.get(key, _NOTHING)
        if type(value) in ATOMS:
            return value
        for frozen in self.shared.values():  # as in ``_mine``: this is called most
            if frozen.get(key) is value:
                return self._copy(key, value)
        return default if value is _NOTHING else value

    def _mine(self, key: Key, value: Record) -> Record:
        if type(value) in ATOMS:
            return value
        for frozen in self.shared.values():
            if frozen.get(key) is value:
                return self._copy(key, value)
        return value

    def _copy(self, key: Key, value: Record) -> Record:
        try:
            self.guarded[key] = mine = self._copied(value)
        except TypeError as error:
            raise StateBroken(
                f"a {type(value).__name__} in the state of the key {key!r} cannot be "
                f"copied while a snapshot is taken: values of state must be picklable"
            ) from error
        return mine


class Spaces:
    """The entries of one state by namespace.

    Those of the namespace None are there from the start, in a table. Others come and go; those that
    a snapshot shares are replaced when they are read, so a user looks them up in each bundle.
    """

    __slots__ = ("_bound", "_guards", "_shared", "by_namespace", "plain", "view")

    def __init__(self) -> None:
        self.plain = Table()
        """Entries of the namespace None."""
        self.by_namespace: dict[Namespace, Entries] = {None: self.plain.view}
        """Without a guard: for namespaces and keys only."""
        self.view: MutableMapping[Namespace, Entries] = self.by_namespace
        self._shared: dict[int, dict[Namespace, Held]] = {}
        self._guards: dict[Namespace, GuardedEntries] = {}
        self._bound: list[Bound] = []

    def bound(self, user: B) -> B:
        """The user, which has the current view now, and gets every later one."""
        self._bound.append(user)
        user.bind(self.view)
        return user

    def freeze(self, number: int) -> dict[Namespace, Held]:
        """The entries as they are now, for the snapshot of this number."""
        frozen: dict[Namespace, Held] = self.by_namespace.copy()  # type: ignore[assignment]
        for namespace, guard in self._guards.items():
            if self.by_namespace.get(namespace) is guard:
                frozen[namespace] = guard.guarded
        frozen[None] = self.plain.freeze(number)
        self.by_namespace[None] = self.plain.view
        self._shared[number] = frozen
        if len(self._shared) == 1:
            self._show(GuardedSpaces(self.by_namespace, self._shared, self._guards))
        return frozen

    def thaw(self, number: int) -> None:
        """The snapshot is closed. Nothing happens if it shared nothing."""
        if self._shared.pop(number, None) is None:
            return
        self.plain.thaw(number)
        self.by_namespace[None] = self.plain.view
        for namespace, guard in list(self._guards.items()):
            guard.shared.pop(number, None)
            if not guard.shared:
                del self._guards[namespace]
                if self.by_namespace.get(namespace) is guard:
                    self.by_namespace[namespace] = guard.guarded
        if not self._shared:
            self._show(self.by_namespace)

    def _show(self, view: MutableMapping[Namespace, Entries]) -> None:
        self.view = view
        for user in self._bound:
            user.bind(view)


class GuardedSpaces(Guard):
    """Namespaces whose entries the open snapshots share.

    ``guards``: the entries that are guarded; another state's may come to stand here, too.
    """

    __slots__ = ("_guards", "_shared")

    def __init__(
        self,
        by_namespace: dict[Namespace, Entries],
        shared: dict[int, dict[Namespace, Held]],
        guards: dict[Namespace, GuardedEntries],
    ) -> None:
        super().__init__(by_namespace)
        self._shared = shared
        self._guards = guards

    def __setitem__(self, key: Namespace, value: Entries) -> None:
        self.guarded[key] = value
        if type(value) is GuardedEntries:
            self._guards[key] = value

    def _mine(self, key: Namespace, value: Entries) -> Entries:
        entries = value.guarded if type(value) is GuardedEntries else value
        for held in self._shared.values():
            if held.get(key) is entries:
                older = value.shared if type(value) is GuardedEntries else {}
                return self._replace(key, held[key], older)
        return value

    def _replace(self, key: Namespace, entries: Held, older: dict[int, Held]) -> Entries:
        """Snapshots hold the entries: a shallow copy, guarded for older ones too, replaces them."""
        sharers = [number for number, held in self._shared.items() if held.get(key) is entries]
        guard = GuardedEntries(entries.copy(), older | dict.fromkeys(sharers, entries))
        self[key] = guard
        return guard


_NOTHING: Final = object()
