"""Values that can be changed and values that cannot, and copies of those that can.

Law: ``own(value)`` equals ``value`` and shares nothing with it that can be changed. Immutable
values stay as they are. What can be changed is copied part by part, instances of a class by code
that is written once for the class, those with a pickling of their own by what they give pickle to
make them from. Only a value that holds itself goes through pickle, whole.
"""

import copyreg
import datetime
import decimal
import fractions
import pickle
import sys
import sysconfig
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import chain
from operator import is_
from types import FunctionType
from typing import Any, Final, TypeAlias
from weakref import getweakrefcount

import msgspec

from headgate.base.elements import Record
from headgate.base.layouts import (
    InstanceLayout,
    give_state,
    is_named_tuple,
    is_plain_struct,
    layout_of,
    member_of,
)

ATOMS: Final = frozenset(
    {
        int,
        str,
        float,
        bool,
        bytes,
        complex,
        type(None),
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        decimal.Decimal,
        fractions.Fraction,
        uuid.UUID,
        range,
        type(...),
    }
)
_CASES: Final = frozenset({tuple, frozenset})
"""As immutable as what they hold."""
_COLUMNS: Final = ("RecordBatch", "Table")
"""Kinds of pyarrow that nobody can change; it is not imported here, because few programs use it."""


def are_immutable(records: list[Record]) -> bool:
    """Whether nobody can change any of these values; some tens of nanoseconds for each."""
    kinds = set(map(type, records))
    if kinds <= ATOMS:
        return True
    if kinds <= _CASES and ATOMS.issuperset(map(type, chain.from_iterable(records))):
        return True
    values = records
    while True:
        kinds = set(map(type, values))
        rest = {kind for kind in kinds - ATOMS if not _is_columnar(kind)}
        if not rest:
            return True
        if not rest <= _CASES:
            return False
        if not kinds <= _CASES:  # atoms and batches hold nothing that can be changed
            values = [value for value in values if type(value) in _CASES]
        values = list(chain.from_iterable(values))


def _is_columnar(kind: type) -> bool:
    return kind.__module__ == "pyarrow.lib" and kind.__name__ in _COLUMNS


def own(value: Record) -> Record:
    """The value itself if nobody can change it, otherwise a copy."""
    kind = type(value)
    if kind in ATOMS or (kind is tuple and ATOMS.issuperset(map(type, value))):
        return value
    try:
        return (_COPIERS.get(kind) or _copier_of(kind))(value)
    except RecursionError:  # it holds itself, or is nested deeply
        return _copy_by_pickle(value)


def own_result(references: int, value: Record) -> Record:
    """Like ``own``, for what a function has given away; ``references`` are those to the value.

    They were counted by ``sys.getrefcount`` where one local variable holds it and nothing else of
    the caller, not even an argument: hence they come first. If nobody else holds it, nor a part of
    it that can be changed, then it is the receiver's own as it is.
    """
    return value if references == SOLE_HOLDER and look_of(type(value))(value) else own(value)


def look_of(kind: type) -> "Look":
    """What tells of such a value, which nobody else holds, whether its parts are its own, too."""
    return _LOOKS.get(kind) or _new_look(kind)


def own_all(records: list[Record]) -> list[Record]:
    """Like ``own``, for many; the list itself if nothing in it can be changed."""
    return records if are_immutable(records) else [own(record) for record in records]


Copier: TypeAlias = Callable[[Any], Any]
"""Takes an instance of a class that it knows, and gives back what ``own`` does."""


def _own_part(value: Record) -> Record:
    """Like ``own``, for what a value holds. A value that holds itself raises RecursionError."""
    kind = type(value)
    if kind in ATOMS:
        return value
    return (_COPIERS.get(kind) or _copier_of(kind))(value)


def _copy_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    for item in value.values():
        if type(item) not in ATOMS:
            return {_own_part(key): _own_part(item) for key, item in value.items()}
    return value.copy()


def _copy_defaultdict(value: defaultdict[Any, Any]) -> defaultdict[Any, Any]:
    return defaultdict(value.default_factory, _copy_dict(value))


def _copy_list(value: list[Any]) -> list[Any]:
    return [item if type(item) in ATOMS else _own_part(item) for item in value]


def _copy_deque(value: deque[Any]) -> deque[Any]:
    return deque(map(_own_part, value), value.maxlen)


def _copy_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    for item in value:
        if type(item) not in ATOMS:
            owned = [_own_part(item) for item in value]
            return value if all(map(is_, owned, value)) else tuple(owned)
    return value


def _copy_set(value: set[Any]) -> set[Any]:
    return set(map(_own_part, value))


def _copy_frozenset(value: frozenset[Any]) -> frozenset[Any]:
    return value if are_immutable([value]) else frozenset(map(_own_part, value))


def _same(value: Record) -> Record:
    return value


def _copy_by_pickle(value: Record) -> Record:
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except Exception as error:
        raise TypeError(
            f"a record with a {type(value).__name__} cannot be copied ({error}); records must be "
            f"picklable, or turn copies off with pipeline.object-reuse: true"
        ) from error


_BUILTIN: Final[dict[type, Copier]] = {
    bytearray: bytearray,
    defaultdict: _copy_defaultdict,
    deque: _copy_deque,
    dict: _copy_dict,
    frozenset: _copy_frozenset,
    list: _copy_list,
    set: _copy_set,
    tuple: _copy_tuple,
    FunctionType: _same,
}
_COPIERS: Final[dict[type, Copier]] = dict(_BUILTIN)
_KNOWN_KINDS: Final = 1024
"""So many classes are remembered; a program that makes classes without end begins anew."""


def _count_references() -> tuple[int, int]:
    """What ``sys.getrefcount`` says of a value with one holder.

    The holder is a local variable; or it is a container, whose part a variable holds beside it. -1:
    counts say nothing useful. Without the interpreter's lock they are kept by thread, and may be
    out of date.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not hasattr(sys, "getrefcount"):
        return -1, -1
    value: list[int] = []
    of_part = [sys.getrefcount(part) for part in [[0]]]
    return sys.getrefcount(value), of_part[0]


SOLE_HOLDER, SOLE_CONTAINER = _count_references()

Look: TypeAlias = Callable[[Any], bool]
"""Whether nobody else holds any part of an instance of a class that it knows, or finds it itself.

Whoever asks has counted the references to the instance.
"""


def is_own_part(references: int, part: Record) -> bool:
    """Whether a part of a value that nobody else holds cannot be changed, or is the value's alone.

    ``references``: to the part, where its container and one local variable hold it.
    """
    kind = type(part)
    if kind in ATOMS:
        return True
    if kind is tuple and ATOMS.issuperset(map(type, part)):
        return True
    try:
        look = look_of(kind)
        return look is _always or (references == SOLE_CONTAINER and look(part))
    except RecursionError:  # it is nested deeply; what holds itself has more than one holder
        return False


def holds_own_values(value: dict[Any, Any]) -> bool:
    """Whether all values of a dict are atoms; or they are its own, and no key can be changed."""
    are_keys_known = False
    for part in value.values():  # not ``all``, which takes twice the time
        if type(part) not in ATOMS:
            if not is_own_part(sys.getrefcount(part), part):
                return False
            if not are_keys_known and not are_immutable([*value]):
                return False
            are_keys_known = True
    return True


def holds_own_items(value: Iterable[Any]) -> bool:
    """Whether all items of a container are atoms or its own."""
    for part in value:
        if type(part) not in ATOMS and not is_own_part(sys.getrefcount(part), part):
            return False
    return True


def _holds_own_items_unseen(value: Any) -> bool:
    """Like ``holds_own_items``, for what weak references may find."""
    return not getweakrefcount(value) and holds_own_items(value)


def _never(value: Record) -> bool:
    return False


def _always(value: Record) -> bool:
    return True


_LOOKS_OF_BUILTIN: Final[dict[type, Look]] = {
    defaultdict: holds_own_values,
    deque: _holds_own_items_unseen,
    dict: holds_own_values,
    list: holds_own_items,
    set: _holds_own_items_unseen,
    tuple: holds_own_items,
}
_LOOKS: Final[dict[type, Look]] = dict(_LOOKS_OF_BUILTIN)


def _new_look(kind: type) -> Look:
    if kind in _LOOKS_OF_BUILTIN:  # another thread forgets the classes just now
        return _LOOKS_OF_BUILTIN[kind]
    if len(_LOOKS) >= _KNOWN_KINDS:
        _LOOKS.clear()
        _LOOKS.update(_LOOKS_OF_BUILTIN)
    look = _LOOKS[kind] = _look_at_class(kind)
    return look


def _look_at_class(kind: type) -> Look:
    if _new_copier(kind) is _same:
        return _always
    custom = getattr(kind, "__headgate_is_new__", None)
    if custom is not None:
        return custom  # type: ignore[no-any-return]
    if is_named_tuple(kind):
        return holds_own_items
    if is_plain_struct(kind):
        names: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
        return _instance_look(InstanceLayout(kind, names, False, True, ()))
    layout = layout_of(kind)
    return _never if layout is None else _instance_look(layout)


def _instance_look(layout: InstanceLayout) -> Look:
    """Write the function that looks at all that an instance holds.

    Whoever has its ``__dict__`` can change it, and whoever has a weak reference can find it.
    """
    given = {
        "ATOMS": ATOMS,
        "count_weak": getweakrefcount,
        "holds_own_values": holds_own_values,
        "is_own_part": is_own_part,
        "references": sys.getrefcount,
    }
    lines = ["def look(value):", " try:"]
    for name in layout.slots:
        lines.append(f"  part = value.{name}")
        lines.append("  if type(part) not in ATOMS and not is_own_part(references(part), part):")
        lines.append("   return False")
    tests = []
    if layout.has_dict:
        tests += [f"references(value.__dict__) == {SOLE_HOLDER}"]
        tests += ["holds_own_values(value.__dict__)"]
    if layout.kind.__weakrefoffset__:
        tests.append("not count_weak(value)")
    lines += [f"  return {' and '.join(tests) or 'True'}", " except AttributeError:"]
    lines.append("  return False")
    exec("\n".join(lines), given)
    look: Look = given["look"]  # type: ignore[assignment]
    return look


def _copier_of(kind: type) -> Copier:
    if len(_COPIERS) >= _KNOWN_KINDS:
        _COPIERS.clear()
        _COPIERS.update(_BUILTIN)
    copier = _COPIERS[kind] = _new_copier(kind)
    return copier


def _new_copier(kind: Any) -> Copier:
    if kind in _BUILTIN:  # another thread forgets the classes just now
        return _BUILTIN[kind]
    if issubclass(kind, Enum | type) or _is_columnar(kind) or _is_number_of_numpy(kind):
        return _same
    if member_of(kind, "__headgate_own__") is not None:
        custom: Copier = kind.__headgate_own__
        return custom
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return _copy_array
    if is_named_tuple(kind):
        return _named_tuple_copier(kind)
    if is_plain_struct(kind):
        return _struct_copier(kind)
    layout = layout_of(kind)
    return _copy_reduced if layout is None else _instance_copier(layout)


def _is_number_of_numpy(kind: Any) -> bool:
    """Whether it is a scalar of numpy other than a structure, without importing numpy."""
    names = [base.__name__ for base in kind.__mro__ if base.__module__ == "numpy"]
    return "generic" in names and "void" not in names and "object_" not in names


def _copy_array(value: Any) -> Any:
    return _copy_reduced(value) if value.dtype.hasobject else value.copy(order="K")


def _named_tuple_copier(kind: Any) -> Copier:
    def copy(value: tuple[Any, ...]) -> tuple[Any, ...]:
        for item in value:
            if type(item) not in ATOMS:
                owned = [_own_part(item) for item in value]
                return value if all(map(is_, owned, value)) else tuple.__new__(kind, owned)
        return value

    return copy


def _struct_copier(kind: Any) -> Copier:
    names, is_frozen = kind.__struct_fields__, kind.__struct_config__.frozen
    assign = msgspec.structs.force_setattr

    def copy(value: Any) -> Any:
        changed = [name for name in names if type(getattr(value, name)) not in ATOMS]
        if is_frozen and not changed:
            return value
        twin = value.__copy__()
        for name in changed:
            assign(twin, name, _own_part(getattr(value, name)))
        return twin

    return copy


def _copy_reduced(value: Any) -> Any:
    """Do what pickle does, without the bytes; pickle has the last word."""
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        made = value.__reduce_ex__(4) if reduce is None else reduce(value)
        return value if isinstance(made, str) else _made(*made)
    except RecursionError:
        raise
    except Exception:
        return _copy_by_pickle(value)


def _made(
    make: Callable[..., Any],
    arguments: tuple[Any, ...],
    state: Any = None,
    items: Iterator[Any] | None = None,
    pairs: Iterator[tuple[Any, Any]] | None = None,
    give: Callable[[Any, Any], None] | None = None,
) -> Any:
    """Make an object of copies, in the order in which pickle does."""
    twin = make(*map(_own_part, arguments))
    if items is not None:
        twin.extend(map(_own_part, items))
    for key, item in pairs or ():
        twin[_own_part(key)] = _own_part(item)
    if state is not None:
        (give or give_state)(twin, _own_part(state))
    return twin


def _instance_copier(layout: InstanceLayout) -> Copier:
    """Write the function that copies an instance: slot by slot, then what its ``__dict__`` holds.

    A slot that is empty raises AttributeError; pickle's way knows what to do then.
    """
    given: dict[str, Any] = {
        "ATOMS": ATOMS,
        "assign": object.__setattr__,
        "by_state": _copy_reduced,
        "kind": layout.kind,
        "new": object.__new__,
        "own_dict": _copy_dict,
        "own_part": _own_part,
    }
    lines = ["def copy(value):", " try:"]
    if layout.frozen_fields:
        lines += [f"  if {' and '.join(_looks(layout))}:", "   return value"]
    lines.append("  twin = new(kind)")
    for name in layout.slots:
        item = "item if type(item) in ATOMS else own_part(item)"
        lines.append(f"  item = value.{name}")
        lines.append(
            f"  twin.{name} = {item}"
            if layout.takes_assignments
            else f"  assign(twin, '{name}', {item})"
        )
    if layout.has_dict:
        lines.append("  assign(twin, '__dict__', own_dict(value.__dict__))")
    lines += ["  return twin", " except AttributeError:", "  return by_state(value)"]
    exec("\n".join(lines), given)
    copier: Copier = given["copy"]
    return copier


def _looks(layout: InstanceLayout) -> Iterator[str]:
    """Conditions of code under which nothing that a frozen instance holds can be changed."""
    if layout.has_dict:
        yield "ATOMS.issuperset(map(type, value.__dict__.values()))"
    else:
        for name in layout.frozen_fields:
            yield f"type(value.{name}) in ATOMS"
