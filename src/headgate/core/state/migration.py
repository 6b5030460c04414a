"""Kinds and types of states: what a checkpoint has noted, and what becomes of it when it is opened.

A state of the same shape is not touched, so that an ordinary restart costs nothing. One whose type
has become wider, or that has got or lost its time to live, is rewritten entry by entry. Laws: a
state that was restored is opened with the kind it had, and with a type that loses nothing of its
values; anything else is refused before the first value is read. What an older version has not noted
is judged by its first values. What nobody has opened yet is noted again as it was.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import IntEnum
from itertools import islice
from typing import Final, NoReturn

from headgate.base.checkpoints import (
    KEYED,
    LISTS,
    MAP,
    PICKLED,
    PRIMITIVE_ARRAY,
    ROW,
    TUPLE,
    WINDOWED,
    StateShape,
    TypeShape,
)
from headgate.base.elements import Record
from headgate.base.errors import StateChanged
from headgate.core.state.backend import KeyedBackend, StateSpec
from headgate.core.state.snapshot import NONE, TTL
from headgate.functions.state import MapStateDescriptor, StateDescriptor

SAMPLED: Final = 1000
"""Places of a state of unknown type that are looked at; on disk each costs a read."""


Convert = Callable[[Record], Record]


class Change(IntEnum):
    """What becomes of values whose declared type is another one now; the greatest counts."""

    NONE = 0
    """They are of the new type as they are."""
    REWRITTEN = 1
    """Each of them is given to the new type, which may still refuse it."""
    REFUSED = 2


class StateShapes:
    """Without arguments: of an operator that begins from nothing."""

    def __init__(
        self, restored: Iterable[StateShape] = (), operator: str = "", checkpoint: int = 0
    ) -> None:
        self._operator = operator
        self._checkpoint = checkpoint
        self._before: dict[tuple[str, str], list[StateShape]] = {}
        for shape in restored:
            self._before.setdefault((shape.scope, shape.name), []).append(shape)
        self._opened: dict[tuple[str, str], StateShape] = {}

    def all(self) -> tuple[StateShape, ...]:
        """For a checkpoint: those that are open, and those that wait to be."""
        waiting = [
            shape
            for place, shapes in self._before.items()
            if place not in self._opened
            for shape in shapes
        ]
        return (*self._opened.values(), *waiting)

    def before(self, name: str, scope: str = KEYED) -> list[StateShape]:
        """How a restored state was noted; old tasks that differ have noted several."""
        return self._before.get((scope, name), [])

    def compare(self, shape: StateShape) -> Change:
        """Whether the restored values of a state must be rewritten; raises StateChanged."""
        change = Change.NONE
        for before in self.before(shape.name, shape.scope):
            if before.kind != shape.kind or len(before.types) != len(shape.types):
                self.refuse(shape, str(before))
            pairs = zip(before.types, shape.types, strict=True)
            change = max([change, *(change_of(*pair) for pair in pairs)])
            if change is Change.REFUSED:
                self.refuse(shape, str(before))
        return change

    def enter(self, shape: StateShape) -> None:
        """A state is open, and what was restored of it has this shape."""
        self._opened[shape.scope, shape.name] = shape

    def refuse(self, shape: StateShape, had: str, why: str = "") -> NoReturn:
        """What is restored does not fit the state that is opened."""
        name = f"the state {shape.name!r}"
        raise StateChanged(self._checkpoint, self._operator, name, had, str(shape), why)


def types_of(descriptor: StateDescriptor) -> tuple[object, ...]:
    """Declared types: of a map of its keys and its values."""
    if isinstance(descriptor, MapStateDescriptor):
        return descriptor.key_type_info, descriptor.type_info
    return (descriptor.type_info,)


def has_ttl(descriptor: StateDescriptor) -> bool:
    """Whether its entries are forgotten after a while."""
    config = descriptor.ttl_config
    return config is not None and config.is_enabled()


def settle(
    backend: KeyedBackend,
    shapes: StateShapes,
    descriptor: StateDescriptor,
    spec: StateSpec,
    now_ms: Callable[[], int],
) -> None:
    """Before a state is opened: make of what was restored what the descriptor says.

    Raises StateChanged, and nothing is opened then.
    """
    scope = WINDOWED if spec.namespaced else KEYED
    types = types_of(descriptor)
    shape = StateShape(descriptor.name, descriptor.kind, tuple(map(shape_of, types)), scope)
    stored_as = backend.catalog.restored_as(spec.name)
    before = shapes.before(shape.name, scope)
    if stored_as is not None and stored_as.removesuffix(TTL) != spec.kind:
        shapes.refuse(shape, str(before[0]) if before else stored_as)
    change = shapes.compare(shape)
    if stored_as is not None:  # else there is nothing to look at
        _adapt(backend, shapes, descriptor, spec, shape, change, now_ms)
    shapes.enter(shape)


def _adapt(
    backend: KeyedBackend,
    shapes: StateShapes,
    descriptor: StateDescriptor,
    spec: StateSpec,
    shape: StateShape,
    change: Change,
    now_ms: Callable[[], int],
) -> None:
    types, before = types_of(descriptor), shapes.before(shape.name, shape.scope)
    stored_as = backend.catalog.stored_as[spec.name]
    entries = _Entries(backend, spec, stored_as.endswith(TTL), has_ttl(descriptor), now_ms)
    known = before[0].types if before else (None,) * len(types)
    converts = tuple(map(converter, known, types))
    try:
        if entries.changes_ttl or change is Change.REWRITTEN:
            entries.rewrite(converts)
        elif not before and any(type_info is not None for type_info in types):
            entries.look_at(converts)
    except TypeError as error:
        shapes.refuse(shape, str(before[0]) if before else stored_as, str(error))


class _Entries:
    """What a restored state holds, at every key and namespace."""

    def __init__(
        self,
        backend: KeyedBackend,
        spec: StateSpec,
        had_ttl: bool,
        has_ttl: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._backend = backend
        self._spec = spec
        self._before = replace(spec, has_ttl=had_ttl)
        self._had_ttl = had_ttl
        self._has_ttl = has_ttl
        self._now_ms = now_ms

    @property
    def changes_ttl(self) -> bool:
        return self._had_ttl != self._has_ttl

    def look_at(self, converts: tuple[Convert, ...]) -> None:
        """Let the new type judge the first ones; raises TypeError."""
        self._each(converts, writes=False, limit=SAMPLED)

    def rewrite(self, converts: tuple[Convert, ...]) -> None:
        """Put each in the new form; raises TypeError."""
        self._each(converts, writes=True, limit=None)
        after = replace(self._spec, has_ttl=self._has_ttl)
        self._backend.catalog.rewritten(after.name, after.stored_as)

    def _each(self, converts: tuple[Convert, ...], *, writes: bool, limit: int | None) -> None:
        backend = self._backend
        cursor = backend.cursor
        key, namespace = cursor.key, cursor.namespace
        visit = self._visitor(converts, writes)
        try:
            for cursor.namespace, cursor.key in islice(backend.places(self._spec), limit):
                visit()
        finally:
            cursor.key, cursor.namespace = key, namespace

    def _visitor(self, converts: tuple[Convert, ...], writes: bool) -> Callable[[], None]:
        """What brings the entry at the cursor into its new form."""
        backend, of_value = self._backend, self._of_value(converts[-1])
        match self._spec.kind:
            case "list":
                elements = backend.list_state(self._before)

                def visit_list() -> None:
                    made = [of_value(element) for element in elements.get()]
                    if writes:
                        elements.update(made)

                return visit_list
            case "map":
                items, of_key = backend.map_state(self._before), converts[0]

                def visit_map() -> None:
                    made = [(of_key(key), of_value(held)) for key, held in list(items.items())]
                    if writes:
                        items.clear()
                        for key, held in made:
                            items.put(key, held)

                return visit_map
            case _:
                value = backend.value_state(self._before)

                def visit_value() -> None:
                    made = of_value(value.value())
                    if writes:
                        value.update(made)

                return visit_value

    def _of_value(self, convert: Convert) -> Convert:
        """With the time of the last touch around it, before and afterwards, if there is one."""
        had_ttl, has_ttl, now_ms = self._had_ttl, self._has_ttl, self._now_ms()

        def converted(held: Record) -> Record:
            value, touched_ms = held if had_ttl else (held, now_ms)
            made = value if value is NONE else convert(value)
            return (made, touched_ms) if has_ttl else made

        return converted


def shape_of(type_info: object) -> TypeShape | None:
    """A declared type as a checkpoint notes it; of types that are not ours, the class."""
    if type_info is None:
        return None
    make = getattr(type_info, "shape", None)
    if make is not None:
        shape = make()
        if isinstance(shape, TypeShape):
            return shape
    kind = type(type_info)
    return TypeShape(f"{kind.__module__}.{kind.__qualname__}")


def change_of(old: TypeShape | None, new: TypeShape | None) -> Change:
    """What becomes of values of ``old`` in a state of ``new``; None: nothing is declared."""
    if new is None or new.name == PICKLED or old == new:
        return Change.NONE
    if old is None or old.name == PICKLED:
        return Change.REWRITTEN
    if old.name == new.name == ROW:
        return _change_of_row(old, new)
    if old.name == new.name and old.name in (TUPLE, MAP, PRIMITIVE_ARRAY):
        return _change_of_parts(old, new)
    if new.name in LISTS and old.name in (*LISTS, PRIMITIVE_ARRAY):
        return Change.REFUSED if _is_bytes(old) else _change_of_parts(old, new)
    if new.name in _WIDER.get(old.name, ()):
        return Change.NONE
    if new.name in _EXACT.get(old.name, ()):
        return Change.REWRITTEN
    return Change.REFUSED


def state_form(type_info: object) -> Callable[[Record], Record] | None:
    """Gives a value in the form that state of this type holds; None: as it is."""
    make: Callable[[], Callable[[Record], Record]] | None = getattr(type_info, "state_form", None)
    return getattr(type_info, "coerced", None) if make is None else make()


def converter(old: TypeShape | None, type_info: object) -> Callable[[Record], Record]:
    """Gives a value of the old type in the form of the new one; raises TypeError if it cannot."""
    coerced = state_form(type_info)

    def convert(value: Record) -> Record:
        if value is None or coerced is None:
            return value
        made = coerced(value if old is None else _by_name(old, value))
        if _is_rounded(value, made):
            raise TypeError(f"{value!r} would become {made!r}")
        row_kind = getattr(value, "get_row_kind", None)
        if row_kind is not None and hasattr(made, "set_row_kind"):
            made.set_row_kind(row_kind())
        return made

    return convert


def _is_rounded(value: Record, made: Record) -> bool:
    """Whether a number is another one now, wherever it stands."""
    if isinstance(value, int | float):
        return value == value and made != value
    if isinstance(value, dict):
        if isinstance(made, dict):
            return any(map(_is_rounded, value.values(), made.values()))
        return any(_is_rounded(part, made[name]) for name, part in value.items())  # a row
    if isinstance(value, list | tuple) or hasattr(value, "get_row_kind"):
        names = getattr(value, "get_field_names", lambda: None)()
        if names and hasattr(made, "get_field_names"):
            pairs = zip(names, value, strict=True)
            return any(_is_rounded(part, made[name]) for name, part in pairs)
        return any(map(_is_rounded, value, made))
    return False


def _change_of_row(old: TypeShape, new: TypeShape) -> Change:
    """Fields go by their names; none may be lost, and new ones are None."""
    parts = dict(zip(new.fields, new.parts, strict=True))
    if not {*old.fields} <= {*parts}:
        return Change.REFUSED
    moved = Change.NONE if old.fields == new.fields else Change.REWRITTEN
    pairs = zip(old.fields, old.parts, strict=True)
    return max([moved, *(change_of(part, parts[name]) for name, part in pairs)])


def _change_of_parts(old: TypeShape, new: TypeShape) -> Change:
    if len(old.parts) != len(new.parts):
        return Change.REFUSED
    if _is_bytes(old) != _is_bytes(new):
        return Change.REFUSED
    pairs = zip(old.parts, new.parts, strict=True)
    return max((change_of(*pair) for pair in pairs), default=Change.NONE)


def _is_bytes(shape: TypeShape) -> bool:
    return shape.name == PRIMITIVE_ARRAY and [part.name for part in shape.parts] == ["BYTE"]


def _by_name(old: TypeShape, value: Record) -> Record:
    """With dicts in place of rows, which a type of rows reads by name, wherever they stand."""
    if value is None:
        return None
    if old.name == ROW and hasattr(value, "get_field_names"):
        names = value.get_field_names() or old.fields
        parts = dict(zip(old.fields, old.parts, strict=True))
        return {
            name: _by_name(parts[name], field) if name in parts else field
            for name, field in zip(names, value, strict=False)
        }
    if old.name == TUPLE and isinstance(value, tuple):
        return tuple(_by_name(part, field) for part, field in zip(old.parts, value, strict=False))
    if old.name in LISTS and isinstance(value, list):
        return [_by_name(old.parts[0], element) for element in value]
    if old.name == MAP and isinstance(value, dict):
        return {key: _by_name(old.parts[1], held) for key, held in value.items()}
    return value


_WHOLE: Final = ("BYTE", "SHORT", "INT", "LONG", "BIG_INT")


_WIDER: Final = {
    **{name: _WHOLE[at + 1 :] for at, name in enumerate(_WHOLE)},
    "FLOAT": ("DOUBLE",),
    "CHAR": ("STRING",),
}
"""Types whose Python values are the same, by those that they hold all values of."""


_EXACT: Final = {
    "BYTE": ("FLOAT", "DOUBLE", "BIG_DEC"),
    "SHORT": ("FLOAT", "DOUBLE", "BIG_DEC"),
    "INT": ("DOUBLE", "BIG_DEC"),
    "LONG": ("BIG_DEC",),
    "BIG_INT": ("BIG_DEC",),
}
"""Types whose values are others in Python, and equal."""
