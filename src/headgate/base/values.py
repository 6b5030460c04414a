"""Values that can be changed and values that cannot, and copies of those that can.

Law: ``own(value)`` equals ``value`` and shares nothing with it that can be changed. Immutable
values stay as they are, flat collections get a shallow copy, the rest goes through pickle.
"""

import datetime
import decimal
import fractions
import pickle
import uuid
from enum import Enum
from itertools import chain
from operator import is_
from types import FunctionType
from typing import Final

from headgate.base.elements import Record

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
    if kind in ATOMS:
        return value
    if kind is dict:
        for item in value.values():
            if type(item) not in ATOMS:
                return {own(key): own(item) for key, item in value.items()}
        return value.copy()
    if kind is list:
        return [item if type(item) in ATOMS else own(item) for item in value]
    if kind is tuple:
        for item in value:
            if type(item) not in ATOMS:
                owned = [own(item) for item in value]
                return value if all(map(is_, owned, value)) else tuple(owned)
        return value
    return _own_rare(value, kind)


def own_all(records: list[Record]) -> list[Record]:
    """The same for many; the list itself if nothing in it can be changed."""
    return records if are_immutable(records) else [own(record) for record in records]


def _own_rare(value: Record, kind: Record) -> Record:
    plain = _PLAIN.get(kind)
    if plain is None:
        if len(_PLAIN) >= _KNOWN_KINDS:
            _PLAIN.clear()
        plain = _PLAIN[kind] = _is_plain(kind)
    if plain:
        twin = kind.__new__(kind)
        twin.__dict__.update(own(value.__dict__))
        return twin
    if isinstance(value, Enum | type | FunctionType) or _is_columnar(kind):
        return value
    copier = getattr(kind, "__headgate_own__", None)
    if copier is not None:
        return copier(value)
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except Exception as error:
        raise TypeError(
            f"a record with a {kind.__name__} cannot be copied ({error}); records must be "
            f"picklable, or turn copies off with pipeline.object-reuse: true"
        ) from error


def _is_plain(kind: Record) -> bool:
    """Whether an instance is what its ``__dict__`` holds and nothing more."""
    return (
        kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind.__new__ is object.__new__
        and kind.__flags__ & _HEAP_TYPE != 0
        and kind.__basicsize__ == _Plain.__basicsize__
        and not issubclass(kind, Enum)
        and not any(hasattr(kind, name) for name in _CUSTOM)
        and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)
        and not any("__slots__" in base.__dict__ for base in kind.__mro__)
    )


class _Plain:
    """An instance of it has a ``__dict__`` and nothing else."""


_PLAIN: Final[dict[type, bool]] = {}
_KNOWN_KINDS: Final = 1024
_HEAP_TYPE: Final = 1 << 9
_CUSTOM: Final = ("__headgate_own__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
