"""From a descriptor to a state: the backend's part, wrapped in time to live, types and folding.

Laws: the same name gives the same state object again; a name that was opened or restored as another
kind, or with another type, is refused. A state with a declared type holds values of that type only;
None is not one of them, except as a value in a map, or of a type that takes anything. Reducing and
aggregating state fold all values of a key into one; a result that is None, zero or empty counts,
too. A wrapper that a descriptor does not ask for is not there, and reading is never checked.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from headgate.base.elements import Record
from headgate.base.values import own
from headgate.core.state.backend import KeyedBackend, StateSpec, state_of
from headgate.core.state.equal_keys import NAN
from headgate.core.state.migration import StateShapes, has_ttl, settle, state_form, types_of
from headgate.core.state.snapshot import NONE
from headgate.core.state.ttl import with_ttl
from headgate.functions.state import (
    Aggregate,
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
)

Check: TypeAlias = Callable[[Record], Record]
"""Gives the value in the form of the type; raises TypeError if it will not do."""


class StateOpener:
    """Opens the states of one operator. ``namespaced``: one for each window, too."""

    def __init__(
        self,
        backend: KeyedBackend,
        now_ms: Callable[[], int],
        namespaced: bool = False,
        shapes: StateShapes | None = None,
    ) -> None:
        """``shapes``: kinds and types of what was restored; None: nothing is known of them."""
        self._backend = backend
        self._shapes = StateShapes() if shapes is None else shapes
        self._now_ms = now_ms
        self._namespaced = namespaced
        self._opened: dict[str, tuple[StateDescriptor, State]] = {}

    def open(self, descriptor: StateDescriptor) -> State:
        """The state that a descriptor names."""
        found = self._opened.get(descriptor.name)
        if found is None:
            found = self._opened[descriptor.name] = descriptor, self._make(descriptor)
        elif found[0] is not descriptor:
            _refuse_other(descriptor, found[0])
        return found[1]

    def opened(self, name: str) -> StateDescriptor | None:
        """The descriptor of an open state; None: nobody has asked for it."""
        found = self._opened.get(name)
        return None if found is None else found[0]

    def _make(self, descriptor: StateDescriptor) -> State:
        kind = descriptor.kind if descriptor.kind in ("list", "map") else "value"
        spec = StateSpec(descriptor.name, kind, self._namespaced)
        settle(self._backend, self._shapes, descriptor, spec, self._now_ms)
        held = self._held(spec, descriptor)
        check = _check(descriptor, descriptor.type_info)
        if isinstance(descriptor, ReducingStateDescriptor):
            return FoldedByReduce(held, descriptor.reduce_function, check)  # type: ignore[arg-type]
        if isinstance(descriptor, AggregatingStateDescriptor):
            return FoldedByAggregate(held, descriptor.agg_function, check)  # type: ignore[arg-type]
        if isinstance(descriptor, MapStateDescriptor):
            check_key = check_for(descriptor.name, descriptor.key_type_info, is_key=True)
            typed = check is not None or check_key is not None
            return TypedMap(held, check_key, check) if typed else held  # type: ignore[arg-type]
        if check is None:
            return held
        return TypedList(held, check) if kind == "list" else TypedValue(held, check)  # type: ignore[arg-type]

    def _held(self, spec: StateSpec, descriptor: StateDescriptor) -> State:
        """The backend's state, with a time to live if the descriptor has one."""
        config, backend = descriptor.ttl_config, self._backend
        if config is not None and has_ttl(descriptor):
            return with_ttl(backend, spec, config, self._now_ms)
        return state_of(backend, spec)


def _refuse_other(descriptor: StateDescriptor, first: StateDescriptor) -> None:
    name, kind = descriptor.name, first.kind
    if kind != descriptor.kind:
        raise ValueError(
            f"the state {name!r} is a {kind} state already and cannot be a {descriptor.kind} state "
            f"too; give it another name"
        )
    if types_of(descriptor) != types_of(first):
        raise ValueError(
            f"the {kind} state {name!r} has the type {_types_text(first)} already and cannot have "
            f"{_types_text(descriptor)} too; give it another name, or both the same type"
        )


def _types_text(descriptor: StateDescriptor) -> str:
    types = types_of(descriptor)
    return ", ".join("none" if info is None else repr(info) for info in types)


def check_for(name: str, type_info: object, hint: str = "", is_key: bool = False) -> Check | None:
    """Checks values for the state of this name; ``hint`` says what to do in place of None.

    ``is_key``: keys of a map, which have the type's own form, since they are found by it. None:
    there is no type, or one that takes everything.
    """
    if type_info is None or getattr(type_info, "takes_anything", False):
        return None
    coerced: Check | None = getattr(type_info, "coerced", None)
    if not is_key:
        coerced = state_form(type_info)

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

    exact = getattr(type_info, "exact", None)
    if is_key and (exact is None or exact[0] is float):  # all NaN are one key, as in Flink
        return lambda key: found if (found := check(key)) == found else NAN
    return _unless_exact(check, exact)


def _unless_exact(check: Check, exact: tuple[type, tuple[int, int] | None] | None) -> Check:
    """Most values have the very class that is declared: they need one look and no call."""
    if exact is None:
        return check
    kind, bounds = exact
    if bounds is None:

        def checked(value: Record) -> Record:
            return value if type(value) is kind else check(value)

    else:
        low, high = bounds  # only whole numbers have bounds

        def checked(value: Record) -> Record:
            return value if type(value) is int and low <= value <= high else check(value)

    checked.exact = exact  # type: ignore[attr-defined]
    return checked


def exact_of(check: Check | None) -> tuple[type, tuple[int, int] | None] | None:
    """The class, and the bounds of numbers, of values that a check takes as they are."""
    return getattr(check, "exact", None)


def _check(descriptor: StateDescriptor, type_info: object) -> Check | None:
    hint = "call clear() to forget the value" if descriptor.kind == "value" else ""
    return check_for(descriptor.name, type_info, hint)


def as_it_is(value: Record) -> Record:
    """The check where no type is declared."""
    return value


class TypedValue(ValueState[Record]):
    """A value of the declared type."""

    __slots__ = ("_put", "check", "clear", "held", "value")
    value: Callable[[], Record]
    clear: Callable[[], None]

    def __init__(self, held: ValueState[Record], check: Check) -> None:
        self.value, self.clear = held.value, held.clear
        self._put = held.update
        self.held = held
        self.check = check

    def update(self, value: Record) -> None:
        self._put(self.check(value))


class TypedList(ListState[Record]):
    """A list whose elements have the declared type."""

    __slots__ = ("check", "clear", "get", "held")
    get: Callable[[], Iterable[Record]]
    clear: Callable[[], None]

    def __init__(self, held: ListState[Record], check: Check) -> None:
        self.get, self.clear = held.get, held.clear
        self.held = held
        self.check = check

    def add(self, value: Record) -> None:
        self.held.add(self.check(value))

    def add_all(self, values: Iterable[Record]) -> None:
        self.held.add_all(self._checked(values))

    def update(self, values: Iterable[Record]) -> None:
        self.held.update(self._checked(values))

    def _checked(self, values: Iterable[Record]) -> list[Record]:
        return all_checked(self.check, values)


def all_checked(check: Check, values: Iterable[Record]) -> list[Record]:
    """A new list. Most values are of the declared class: that is one look at all of them."""
    found, exact = list(values), exact_of(check)
    if exact is not None and {exact[0]}.issuperset(map(type, found)):
        bounds = exact[1]
        if bounds is None or not found or bounds[0] <= min(found) <= max(found) <= bounds[1]:
            return found
    return list(map(check, found))


class TypedMap(MapState[Record, Record]):
    """A map whose keys and values have the declared types; a missing check is that of no type."""

    __slots__ = ("check", "check_key", "clear", "held", "is_empty", "items", "keys", "values")
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
        self.held = held
        self.check_key = check_key or as_it_is
        self.check = check or as_it_is

    def get(self, key: Record) -> Record:
        found = self.held.get(key)
        # A key that is found needs no check; another may have been put in the type's own form.
        return self.held.get(self.check_key(key)) if found is None else found

    def put(self, key: Record, value: Record) -> None:
        self.held.put(self.check_key(key), None if value is None else self.check(value))

    def remove(self, key: Record) -> None:
        self.held.remove(self.check_key(key))

    def contains(self, key: Record) -> bool:
        return self.held.contains(key) or self.held.contains(self.check_key(key))


class FoldedByReduce(ReducingState[Record]):
    """Folds by a callable of two values, or an object with ``reduce``; the type is the values'."""

    def __init__(
        self, value: ValueState[Record], function: object, check: Check | None = None
    ) -> None:
        self.held = value
        self.reduce: Callable[[Record, Record], Record] = getattr(function, "reduce", function)  # type: ignore[arg-type]
        self.check = check

    def get(self) -> Record:
        found = self.held.value()
        return None if found is NONE else found

    def add(self, value: Record) -> None:
        check = self.check
        if check is not None:
            value = check(value)
        old = self.held.value()
        if old is not None:
            value = self.reduce(None if old is NONE else old, value)
            if check is not None:
                value = check(value)
        self.held.update(NONE if value is None else value)

    def clear(self) -> None:
        self.held.clear()


class FoldedByAggregate(AggregatingState[Record, Record]):
    """Folds into an accumulator, whose type it is."""

    def __init__(
        self, value: ValueState[Record], function: Aggregate, check: Check | None = None
    ) -> None:
        self.held = value
        self.function = function
        self.check = check

    def get(self) -> Record:
        found = self.held.value()
        if found is None:
            return None
        return self.function.get_result(None if found is NONE else found)

    def add(self, value: Record) -> None:
        found = self.held.value()
        if found is None:
            found = own(self.function.create_accumulator())  # it may be the same for every key
        made = self.function.add(value, None if found is NONE else found)
        if self.check is not None:
            made = self.check(made)
        self.held.update(NONE if made is None else made)

    def clear(self) -> None:
        self.held.clear()
