"""What equal keys have in common, though their classes, zones or units differ.

Law: keys that a dictionary takes for one have equal canonical keys, or equal parts of them. A key
of a common kind (a text, an int, a date, a moment in UTC and so on) is its own canonical key, so
that its group is the one it has always had. Equality of other classes is their own affair: what
they give to pickle has to be equal for equal objects, or they define ``__headgate_key__``.
"""

import sys
from array import array
from collections import UserString, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import nan
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Final, TypeAlias
from uuid import UUID

from headgate.base.elements import Key

NAN: Final = nan
"""Stands for every key that is not equal to itself: a dictionary finds the same object again."""

_KINDS: Final = 1024
"""So many are remembered. Classes that users define in functions come and go."""

_ATTOSECONDS: Final = {
    unit: seconds * 10**18
    for unit, seconds in (("W", 604_800), ("D", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
} | {unit: 10 ** (3 * at) for at, unit in enumerate(("as", "fs", "ps", "ns", "us", "ms"))}
_MICROSECOND: Final = _ATTOSECONDS["us"]
_EPOCH: Final = datetime(1970, 1, 1)

Make: TypeAlias = Callable[[Key], Key]


class KeyParts:
    """A key that no object of the standard library equals, as parts that tell it from others."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: object) -> None:
        self._parts = parts

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        return KeyParts, self._parts


def canonical(key: Key) -> Key:
    """One key for all keys that equal it."""
    kind: type = type(key)
    make = _maker(kind)
    return key if make is None else make(key)


def is_scalar(kind: type) -> bool:
    """Whether ``canonical`` tells of a key of this kind whether it is a NaN."""
    return kind is float or _maker(kind) in _SCALAR_MAKERS


def parts_of(key: Key) -> str | list[Key]:
    """What an object gives to pickle, without what it does not compare."""
    parts = key.__reduce_ex__(4)
    if isinstance(parts, str):
        return parts
    found = [list(part) if isinstance(part, Iterator) else part for part in parts]
    if len(found) > 2:
        kind: type = type(key)
        compared = _compared_fields(kind)
        if compared is not None:
            found[2] = _compared(found[2], compared)
        elif isinstance(found[2], dict) and not _FIELDS_SET.isdisjoint(found[2]):
            found[1:3] = _compared_model(kind, found[1], found[2])
    return found


def local_time(key: datetime) -> Key | None:
    """A time that the clock of its zone shows twice, or never: it equals no moment elsewhere."""
    if key.tzinfo is None or isinstance(key.tzinfo, timezone):
        return None
    first, second = (_plain_datetime(key, fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return None
    return KeyParts("local time", first.replace(tzinfo=None), key.tzinfo)


def _moment(key: datetime) -> Key:
    if key != key:  # pandas.NaT, which is the same object everywhere
        return key
    plain = _plain_datetime(key)
    offset = plain.utcoffset()
    clock = plain.replace(tzinfo=None)
    nanoseconds = getattr(key, "nanosecond", 0)
    if offset is not None:
        try:
            clock = (clock - offset).replace(tzinfo=timezone.utc)
        except OverflowError:  # on the first day that there is, or on the last
            return KeyParts("datetime", clock - datetime.min - offset)
    return KeyParts("datetime", clock, nanoseconds) if nanoseconds else clock


def _plain_datetime(key: datetime, fold: int = 0) -> datetime:
    day = key.year, key.month, key.day
    return datetime(
        *day, key.hour, key.minute, key.second, key.microsecond, tzinfo=key.tzinfo, fold=fold
    )


def _date(key: date) -> Key:
    return date(key.year, key.month, key.day)


def _time(key: time) -> Key:
    plain, offset = time(key.hour, key.minute, key.second, key.microsecond), key.utcoffset()
    if offset is None:
        return plain
    since_midnight = datetime.combine(_EPOCH, plain) - _EPOCH - offset
    if since_midnight // timedelta(days=1) == 0:
        return (_EPOCH + since_midnight).time().replace(tzinfo=timezone.utc)
    return KeyParts("time", since_midnight)


def _span(key: timedelta) -> Key:
    plain = timedelta(key.days, key.seconds, key.microseconds)
    nanoseconds = getattr(key, "nanoseconds", 0)
    return KeyParts("timedelta", plain, nanoseconds) if nanoseconds else plain


def _range(key: range) -> Key:
    if len(key) < 2:
        return range(key[0], key[0] + 1) if key else range(0)
    return range(key.start, key.start + len(key) * key.step, key.step)


def _path(key: PurePath) -> Key:
    if isinstance(key, PureWindowsPath):
        return PureWindowsPath(str(key).lower())
    return PurePosixPath(key)


def _float(key: float) -> Key:
    return key if key == key else NAN


def _decimal(key: Decimal) -> Key:
    return NAN if key.is_nan() else key


def _complex(key: Key) -> Key:
    number = complex(key)
    if number != number:
        return NAN
    return number if number.imag else number.real


def _floating(key: Key) -> Key:
    """A float of numpy; a long double holds more than a float."""
    number = float(key)
    if number != number:
        return NAN
    return number if number == key else Fraction(*key.as_integer_ratio())


def _numpy_time(key: Key) -> Key:
    """A datetime64 or timedelta64: by its length, whatever unit counts it."""
    numpy = sys.modules["numpy"]
    if numpy.isnat(key):
        return NAN
    is_moment = isinstance(key, numpy.datetime64)
    unit, count = numpy.datetime_data(key.dtype)
    if unit in "YM" and is_moment:
        key, unit, count = key.astype("M8[D]"), "D", 1
    steps = int(key.astype("i8")) * count
    if unit in "YM":
        return KeyParts("months", steps * 12 if unit == "Y" else steps)
    if unit not in _ATTOSECONDS:  # without a unit
        return KeyParts("steps", steps)
    microseconds, rest = divmod(steps * _ATTOSECONDS[unit], _MICROSECOND)
    try:
        span = timedelta(microseconds=microseconds)
        plain = _EPOCH + span if is_moment else span
    except OverflowError:
        return KeyParts(type(key).__name__, microseconds, rest)
    return KeyParts(type(key).__name__, plain, rest) if rest else plain


_MAKERS: Final[tuple[tuple[type, Make], ...]] = (
    (float, _float),
    (datetime, _moment),
    (date, _date),
    (time, _time),
    (timedelta, _span),
    (timezone, lambda key: timezone(key.utcoffset(None))),
    (Decimal, _decimal),
    (complex, _complex),
    (UUID, lambda key: UUID(int=key.int)),
    (range, _range),
    (PurePath, _path),
    (UserString, lambda key: key.data),
)
_ITEM_MAKERS: Final[tuple[tuple[type, Make], ...]] = (
    (deque, lambda key: KeyParts("deque", *key)),
    (array, lambda key: KeyParts("array", *key)),
)
_NUMPY_MAKERS: Final[tuple[tuple[str, Make], ...]] = (
    ("bool_", bool),
    ("floating", _floating),
    ("complexfloating", _complex),
    ("datetime64", _numpy_time),
    ("timedelta64", _numpy_time),
)
_SCALAR_MAKERS: Final = frozenset(make for _, make in (*_MAKERS, *_NUMPY_MAKERS))


@lru_cache(_KINDS)
def _maker(kind: type) -> Make | None:
    """What makes canonical keys of a kind; None: its keys are."""
    for base, make in (*_MAKERS, *_ITEM_MAKERS):
        if issubclass(kind, base):
            return make
    numpy = sys.modules.get("numpy")  # a key of its kinds cannot be there before it
    if numpy is not None and issubclass(kind, numpy.generic):
        for name, make in _NUMPY_MAKERS:
            if issubclass(kind, getattr(numpy, name)):
                return make
    own: Make | None = getattr(kind, "__headgate_key__", None)
    return own


_FIELDS_SET: Final = frozenset({"__pydantic_fields_set__", "__fields_set__"})
"""What a model of pydantic notes, and does not compare: which fields were given; 2 and 1."""

Compared: TypeAlias = Mapping[str, Make | None]
"""What of each field of a class is compared; None: nothing."""


@lru_cache(_KINDS)
def _compared_fields(kind: type) -> Compared | None:
    """Fields by which objects of a dataclass, or a class of attrs, are compared."""
    if "__attrs_attrs__" in kind.__dict__:
        own = kind.__attrs_attrs__  # type: ignore[attr-defined]
        return {field.name: (field.eq_key or _whole) if field.eq else None for field in own}
    if not is_dataclass(kind) or not kind.__dataclass_params__.eq:  # type: ignore[attr-defined]
        return None
    return {field.name: _whole if field.compare else None for field in fields(kind)}


def _whole(value: Key) -> Key:
    return value


def _compared(state: object, own: Compared) -> object:
    """The part of an object's state that counts, in the shape of the whole."""
    match state:
        case dict() if own.keys() <= state.keys():
            return _compared_values(state, own)
        case (None, dict() as slots) if own.keys() <= slots.keys():
            return None, _compared_values(slots, own)
        case list() if len(state) == len(own):  # of one with slots that is frozen
            return list(_compared_values(dict(zip(own, state, strict=True)), own).values())
        case _:
            return state


def _compared_values(values: dict[str, Key], own: Compared) -> dict[str, Key]:
    return {
        name: compared(value)
        for name, value in values.items()
        if (compared := own.get(name)) is not None
    }


def _compared_model(kind: type, made_of: Key, state: dict[str, Key]) -> tuple[Key, Key]:
    """What makes a model of pydantic, and its state, without what the model does not compare."""
    compared = {name: part for name, part in state.items() if name not in _FIELDS_SET}
    names, values = getattr(kind, "model_fields", None), state["__dict__"]
    if names is not None and names.keys() <= values.keys():  # beside them is what was cached
        compared["__dict__"] = {name: values[name] for name in names}
    generic = getattr(kind, "__pydantic_generic_metadata__", None)
    if generic is not None and generic["origin"] is not None and made_of == (kind,):
        return (generic["origin"],), compared
    return made_of, compared
