"""Dictionaries that can be shared with a snapshot: reading a shared value hands out a copy of it.

A snapshot takes a shallow copy, so both sides refer to the same values. Law: what a snapshot holds
does not change, whatever is done to values that were read from the table after it was taken. While
no snapshot is open a table is a plain dictionary: being guarded is another class, which it takes on
and off.
"""

from collections.abc import Callable, ItemsView, ValuesView
from typing import Final, TypeAlias

from headgate.base.elements import Key, Record
from headgate.base.errors import StateBroken
from headgate.base.values import ATOMS, own
from headgate.core.state.cursor import Namespace

Held: TypeAlias = dict[Key, Record]
"""What a snapshot holds of a table; nobody changes it."""


class Table(dict[Key, Record]):
    """Entries by key. ``copied`` makes the copy of a value that is shared."""

    __slots__ = ("copied", "shared")

    def __init__(self, copied: Callable[[Record], Record] = own) -> None:
        super().__init__()
        self.copied = copied
        self.shared: dict[int, Held] = {}
        """What open snapshots hold, by their numbers."""

    def freeze(self, number: int) -> Held:
        """The entries as they are now, for the snapshot of this number."""
        frozen = self.shared[number] = dict.copy(self)
        self.__class__ = GuardedTable
        return frozen

    def thaw(self, number: int) -> None:
        """The snapshot is closed. Nothing happens if it shared nothing."""
        self.shared.pop(number, None)
        if not self.shared:
            self.__class__ = Table


class Guard(dict[Key, Record]):
    """Whatever hands out a value asks ``_mine`` for it first."""

    __slots__ = ()

    def _mine(self, key: Key, value: Record) -> Record:
        raise NotImplementedError

    def __getitem__(self, key: Key) -> Record:
        return self._mine(key, super().__getitem__(key))

    def get(self, key: Key, default: Record = None) -> Record:
        value = dict.get(self, key, _NOTHING)  # quicker than by super()
        return default if value is _NOTHING else self._mine(key, value)

    def setdefault(self, key: Key, default: Record = None) -> Record:
        return self._mine(key, super().setdefault(key, default))

    def pop(self, key: Key, *default: Record) -> Record:
        if key in self:
            self._mine(key, super().__getitem__(key))
        return super().pop(key, *default)

    def popitem(self) -> tuple[Key, Record]:
        key = next(reversed(self), _NOTHING)
        if key is not _NOTHING:
            self._mine(key, super().__getitem__(key))
        return super().popitem()

    def items(self) -> ItemsView[Key, Record]:  # type: ignore[override] # dict's has no public name
        self._all_mine()
        return super().items()

    def values(self) -> ValuesView[Record]:  # type: ignore[override]
        self._all_mine()
        return super().values()

    def copy(self) -> dict[Key, Record]:
        self._all_mine()
        return super().copy()

    def _all_mine(self) -> None:
        for key, value in super().items():
            self._mine(key, value)


class GuardedTable(Guard, Table):
    """A table while snapshots that share its values are open."""

    __slots__ = ()

    def _mine(self, key: Key, value: Record) -> Record:
        if type(value) in ATOMS:
            return value
        for frozen in self.shared.values():
            if dict.get(frozen, key) is value:
                try:
                    mine = self.copied(value)
                except TypeError as error:
                    raise StateBroken(
                        f"a {type(value).__name__} in the state of the key {key!r} cannot be "
                        f"copied while a snapshot is taken: values of state must be picklable"
                    ) from error
                self[key] = mine
                return mine
        return value


class Spaces(dict[Namespace, dict[Key, Record]]):
    """The tables of one state by namespace.

    That of the namespace None is there from the start and stays the same object. Others are plain
    dictionaries that come and go; one that a snapshot shares is replaced when it is read.
    """

    __slots__ = ("shared", "successors")

    def __init__(self) -> None:
        super().__init__({None: Table()})
        self.shared: dict[int, dict[Namespace, Held]] = {}
        self.successors: list[Table] = []
        """Tables that took the place of one that a snapshot holds."""

    @property
    def plain(self) -> Table:
        """The table of the namespace None."""
        return dict.__getitem__(self, None)  # type: ignore[return-value]

    def freeze(self, number: int) -> dict[Namespace, Held]:
        """The tables as they are now, for the snapshot of this number."""
        frozen = self.shared[number] = dict.copy(self)
        frozen[None] = self.plain.freeze(number)
        self.__class__ = GuardedSpaces
        return frozen

    def thaw(self, number: int) -> None:
        """The snapshot is closed. Nothing happens if it shared nothing."""
        self.shared.pop(number, None)
        self.plain.thaw(number)
        for table in self.successors:
            table.thaw(number)
        self.successors = [table for table in self.successors if table.shared]
        if not self.shared:
            self.__class__ = Spaces


class GuardedSpaces(Guard, Spaces):
    """The same while snapshots are open."""

    __slots__ = ()

    def _mine(self, key: Namespace, value: Held) -> Held:
        sharers = [number for number, held in self.shared.items() if held.get(key) is value]
        if not sharers or key is None:
            return value
        successor = Table()
        dict.update(successor, value)
        successor.shared.update(value.shared if isinstance(value, Table) else {})
        successor.shared.update(dict.fromkeys(sharers, value))
        successor.__class__ = GuardedTable
        self[key] = successor
        self.successors.append(successor)
        return successor


_NOTHING: Final = object()
