"""Whether values of one declared type are values of another, and how they become that.

Law: a change that loses nothing is made, every other one is refused: whole numbers become wider or
exact, floats become doubles, rows get fields that are None at first, anything becomes any object.
Values that were not declared are judged one by one.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from headgate.base.elements import Record
from headgate.base.state_shapes import (
    LISTS,
    MAP,
    PICKLED,
    PRIMITIVE_ARRAY,
    ROW,
    TUPLE,
    TypeShape,
)


class Change(IntEnum):
    """What becomes of values whose declared type is another one now; the greatest counts."""

    NONE = 0
    """They are of the new type as they are."""
    REWRITTEN = 1
    """Each of them is given to the new type, which may still refuse it."""
    REFUSED = 2


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


def converter(old: TypeShape | None, type_info: object) -> Callable[[Record], Record]:
    """Gives a value of the old type in the form of the new one; raises TypeError if it cannot."""
    coerced: Callable[[Record], Record] | None = getattr(type_info, "coerced", None)

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
