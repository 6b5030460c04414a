"""What equal keys have in common, though their classes, zones or units differ.

Law: keys that a dictionary takes for one have equal canonical keys, or equal parts of them. A key
of a common kind (a text, an int, a date, a moment in UTC and so on) is its own canonical key, so
that its group is the one it has always had. Equality of other classes is their own affair: what
they give to pickle has to be equal for equal objects, or they define ``__headgate_key__``.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import nan
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
    """The same for all keys that equal it."""
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
    kind: type = type(key)
    compared = _compared_fields(kind)
    if compared is not None and len(found) > 2:
        found[2] = _compared(found[2], compared)
    return found


def local_time(key: datetime) -> Key | None:
    """Of a time that the clock of its zone shows twice, or never: it equals no moment elsewhere."""
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
    """Of numpy; a long double holds more than a float."""
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
    for base, make in _MAKERS:
        if issubclass(kind, base):
            return make
    numpy = sys.modules.get("numpy")  # a key of its kinds cannot be there before it
    if numpy is not None and issubclass(kind, numpy.generic):
        for name, make in _NUMPY_MAKERS:
            if issubclass(kind, getattr(numpy, name)):
                return make
    own: Make | None = getattr(kind, "__headgate_key__", None)
    return own


@lru_cache(_KINDS)
def _compared_fields(kind: type) -> tuple[Field[Key], ...] | None:
    """The fields of a dataclass whose objects are compared by them."""
    if not is_dataclass(kind) or not kind.__dataclass_params__.eq:  # type: ignore[attr-defined]
        return None
    return fields(kind)


def _compared(state: object, own: tuple[Field[Key], ...]) -> object:
    """The part of an object's state that counts, in the shape of the whole."""
    names = {field.name for field in own}
    compared = {field.name for field in own if field.compare}
    match state:
        case dict() if names <= state.keys():
            return {name: value for name, value in state.items() if name in compared}
        case (None, dict() as slots) if names <= slots.keys():
            return None, {name: value for name, value in slots.items() if name in compared}
        case list() if len(state) == len(own):  # of one with slots that is frozen
            return [value for field, value in zip(own, state, strict=True) if field.compare]
        case _:
            return state
