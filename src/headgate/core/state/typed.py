"""States with a declared type: what is written is checked, and brought into the type's form.

Reading is not looked at: there the methods are those of the state beneath, so it costs nothing.
Law: a state with a type holds values of that type only; None is none of them, except as a value in
a map, or of a type that takes anything.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from headgate.base.elements import Record
from headgate.functions.state import ListState, MapState, ValueState

Check: TypeAlias = Callable[[Record], Record]
"""Gives the value in the form of the type; raises TypeError if it will not do."""


def check_for(name: str, type_info: object, hint: str = "") -> Check | None:
    """Checks values for the state of this name; ``hint`` says what to do in place of None.

    None: there is no type, or one that takes everything.
    """
    if type_info is None or getattr(type_info, "takes_anything", False):
        return None
    coerced: Check | None = getattr(type_info, "coerced", None)

    def check(value: Record) -> Record:
        if value is None:
            raise TypeError(
                f"the state {name!r} has the type {type_info!r} and does not take None; "
                f"{hint or 'write a value, or leave it out'}"
            )
        if coerced is None:
            return value
        try:
            return coerced(value)
        except TypeError as error:
            raise TypeError(f"the state {name!r} got a wrong value: {error}") from error

    return check


class TypedValue(ValueState[Record]):
    """A value of the declared type."""

    __slots__ = ("_check", "_put", "clear", "value")
    value: Callable[[], Record]
    clear: Callable[[], None]

    def __init__(self, held: ValueState[Record], check: Check) -> None:
        self.value, self.clear = held.value, held.clear
        self._put = held.update
        self._check = check

    def update(self, value: Record) -> None:
        self._put(self._check(value))


class TypedList(ListState[Record]):
    """A list whose elements have the declared type."""

    __slots__ = ("_check", "_held", "clear", "get")
    get: Callable[[], Iterable[Record]]
    clear: Callable[[], None]

    def __init__(self, held: ListState[Record], check: Check) -> None:
        self.get, self.clear = held.get, held.clear
        self._held = held
        self._check = check

    def add(self, value: Record) -> None:
        self._held.add(self._check(value))

    def add_all(self, values: Iterable[Record]) -> None:
        self._held.add_all(list(map(self._check, values)))

    def update(self, values: Iterable[Record]) -> None:
        self._held.update(list(map(self._check, values)))


class TypedMap(MapState[Record, Record]):
    """A map whose keys and values have the declared types; a missing check is that of no type."""

    __slots__ = ("_check", "_check_key", "_held", "clear", "is_empty", "items", "keys", "values")
    items: Callable[[], Iterable[tuple[Record, Record]]]
    keys: Callable[[], Iterable[Record]]
    values: Callable[[], Iterable[Record]]
    is_empty: Callable[[], bool]
    clear: Callable[[], None]

    def __init__(
        self, held: MapState[Record, Record], check_key: Check | None, check: Check | None
    ) -> None:
        self.items, self.keys, self.values = held.items, held.keys, held.values
        self.is_empty, self.clear = held.is_empty, held.clear
        self._held = held
        self._check_key = check_key or as_it_is
        self._check = check or as_it_is

    def get(self, key: Record) -> Record:
        found = self._held.get(key)
        # A key that is found needs no check; another may have been put in the type's own form.
        return self._held.get(self._check_key(key)) if found is None else found

    def put(self, key: Record, value: Record) -> None:
        self._held.put(self._check_key(key), None if value is None else self._check(value))

    def remove(self, key: Record) -> None:
        self._held.remove(self._check_key(key))

    def contains(self, key: Record) -> bool:
        return self._held.contains(key) or self._held.contains(self._check_key(key))


def as_it_is(value: Record) -> Record:
    """The check where no type is declared."""
    return value
