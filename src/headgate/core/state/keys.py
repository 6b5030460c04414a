"""Keys: as dictionary keys, as bytes that can be sorted, and as key groups.

A key that is not hashable, or whose hash is that of one object alone, is *frozen* into a form that
is. Laws: equal keys have equal stand-ins, equal bytes and the same group in every process of a job,
though they may look different (1 and 1.0, a dict in another order). Objects of other kinds go by
what pickle would ask of them: as records travel, no object is the same twice. A task owns a range
of groups that depends on its index, the parallelism and the number of groups alone.
"""

import marshal
import math
import pickle
import zlib
from collections.abc import Iterator, Mapping, Set
from datetime import datetime, timezone
from decimal import Decimal
from itertools import chain
from numbers import Integral, Rational
from types import BuiltinFunctionType, FunctionType
from typing import Final
from zoneinfo import ZoneInfo

from headgate.base.elements import Key
from headgate.base.moved import first_name

NAN: Final = math.nan
"""The one object for keys that are NaN: none equals another, but a dictionary finds the same."""


_BY_IDENTITY: Final = object.__hash__


_SINGLE: Final = (type(None), type(...), type, FunctionType, BuiltinFunctionType)
"""Of these the same object comes back, wherever it travels."""


_PLAIN: Final = frozenset({str, int, bytes, type(None)})


_VERSION: Final = 2
"""Of marshal: later ones write the same text in two ways, interned or not, and refer back."""


class Frozen:
    """Stands for a key that is not hashable."""

    __slots__ = ("form", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.form = _frozen_form(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and other.form == self.form

    def __hash__(self) -> int:
        return self.form.__hash__()

    def __repr__(self) -> str:
        return f"Frozen({self.key!r})"


def freeze(key: Key) -> Key:
    """The key itself if it is hashable by what it holds, else a stand-in that is."""
    if type(key) is float and key != key:
        return NAN
    try:
        type(key).__hash__(key)  # type: ignore[call-arg] # of the class: a key may be a class too
    except TypeError:
        return Frozen(key)
    return Frozen(key) if go_by_identity([key]) else key


def go_by_identity(keys: list[Key]) -> bool:
    """Whether the hash of a key, or of a part of a tuple, is that of one object alone."""
    while keys:
        kinds = set(map(type, keys))
        for kind in kinds:
            if getattr(kind, "__hash__", None) is _BY_IDENTITY and not issubclass(kind, _SINGLE):
                return True
        if tuple not in kinds:
            return False
        keys = list(chain.from_iterable([key for key in keys if type(key) is tuple]))
    return False


def _frozen_form(key: Key) -> tuple[str, object]:
    match key:
        case list():
            return "list", tuple(map(freeze, key))
        case tuple():
            return "tuple", tuple(map(freeze, key))
        case Set():
            return "set", frozenset(map(freeze, key))
        case Mapping():
            return "mapping", frozenset((name, freeze(value)) for name, value in key.items())
        case bytearray():
            return "bytes", bytes(key)
        case _:
            return "object", pickle.dumps(canonical(key), 5)


def canonical(key: Key) -> Key:
    """The same for equal objects of a class that says so by ``__headgate_key__``."""
    if type(key) is datetime and isinstance(key.tzinfo, ZoneInfo):
        return _in_utc(key)
    make = getattr(type(key), "__headgate_key__", None)
    return key if make is None else make(key)


def _in_utc(key: datetime) -> datetime:
    """What it equals, whatever the rules of its zone are in this process."""
    try:
        return key.replace(fold=0).astimezone(timezone.utc)
    except OverflowError:  # of the first day that there is, or of the last
        return key


def key_bytes(key: Key) -> bytes:
    """The bytes of a key, or of what stands for it while it is frozen."""
    if type(key) in _PLAIN:
        return marshal.dumps(key, _VERSION)
    if type(key) is Frozen:
        key = key.key
    return marshal.dumps(_bytes_form(key), _VERSION)  # type: ignore[arg-type]  # only what it writes


def _bytes_form(key: Key) -> object:
    """Something that marshal writes, the same for equal keys."""
    kind = type(key)
    if kind in _PLAIN:
        return key
    match key:
        case str():
            return str.__str__(key)
        case bytes() | bytearray():
            return bytes(key)
        case Integral():
            return int(key)
        case float() | Decimal() | Rational():
            ratio = _ratio(key)
            if ratio is None:
                return ("number", repr(float(key)))
            return ratio[0] if ratio[1] == 1 else ("number", *ratio)
        case tuple():
            return ("tuple", *map(_bytes_form, key))
        case list():
            return ("list", *map(_bytes_form, key))
        case Set():
            return ("set", *sorted(map(key_bytes, key)))
        case Mapping():
            return ("mapping", *sorted(map(key_bytes, key.items())))
        case type() | FunctionType() | BuiltinFunctionType():
            return ("name", *first_name(key))
        case _:
            parts = canonical(key).__reduce_ex__(4)
            if isinstance(parts, str):
                return ("name", parts)
            return ("object", *[_bytes_form(_comparable(part)) for part in parts])


def groups_of(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups that a task owns."""
    first = (subtask * max_parallelism + parallelism - 1) // parallelism
    last = ((subtask + 1) * max_parallelism + parallelism - 1) // parallelism
    return range(first, last)


def key_group(key: Key, max_parallelism: int) -> int:
    """The group that a key and its state belong to: its stable hash, modulo their number."""
    kind = type(key)
    if kind is int:  # as below, in one call instead of five
        bits: int = key & 0xFFFFFFFF
        bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
        bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
        bits ^= (bits >> 16) ^ ((key >> 32) & 0xFFFFFFFF)
    elif kind is str:
        bits = zlib.crc32(key.encode("utf-8", "surrogatepass"))
    else:
        return stable_hash(key) % max_parallelism
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return (bits ^ (bits >> 16)) % max_parallelism


def stable_hash(key: Key) -> int:
    """The same 32 bits for equal keys in every process (``hash`` of a text is not).

    Numbers go by value, collections by their items, other objects by what pickle would ask of them.
    """
    return mix(_hash_bits(key))


def _hash_bits(key: Key) -> int:
    kind = type(key)
    if kind is str:
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if kind is int or kind is bool:
        number = int(key)
        return mix(number & 0xFFFFFFFF) ^ ((number >> 32) & 0xFFFFFFFF)
    if kind is bytes:
        return zlib.crc32(key, 1)
    if kind is tuple or kind is list:
        bits = len(key)
        for item in key:
            bits = (bits * 31 + mix(_hash_bits(item))) & 0xFFFFFFFF
        return bits
    return _hash_rare(key)


def _hash_rare(key: Key) -> int:
    """Kinds that may equal one of the common kinds, or look different though they are equal."""
    match key:
        case None:
            return 2
        case str():
            return _hash_bits(str.__str__(key))
        case bytes() | bytearray():
            return _hash_bits(bytes(key))
        case Integral():
            return _hash_bits(int(key))
        case float() | Decimal() | Rational():
            # A Decimal beyond the range of floats has always had the group of infinity.
            ratio = _ratio(key) if isinstance(key, Rational) or math.isfinite(key) else None
            if ratio is None:
                return _hash_bits(repr(float(key)))
            return _hash_bits(ratio[0] if ratio[1] == 1 else ratio)
        case tuple():
            return _hash_bits(list(key))
        case Set():
            return sum(mix(_hash_bits(item)) for item in key) + 3
        case Mapping():
            return sum(mix(_hash_bits(item)) for item in key.items()) + 4
        case type() | FunctionType() | BuiltinFunctionType():
            return _hash_bits(".".join(first_name(key)))
        case _:
            parts = canonical(key).__reduce_ex__(4)
            return _hash_bits(parts if isinstance(parts, str) else [*map(_comparable, parts)])


def _ratio(key: float | Decimal | Rational) -> tuple[int, int] | None:
    """A number as a fraction in lowest terms; None: it is infinite, or none."""
    if isinstance(key, Rational):
        return int(key.numerator), int(key.denominator)
    if not (key.is_finite() if isinstance(key, Decimal) else math.isfinite(key)):
        return None
    return key.as_integer_ratio()


def _comparable(part: object) -> object:
    """A part of what an object gives to pickle."""
    return list(part) if isinstance(part, Iterator) else part


def mix(bits: int) -> int:
    """Spreads 32 bits so that neighbours land far from each other."""
    bits &= 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return bits ^ (bits >> 16)
