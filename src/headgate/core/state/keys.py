"""Keys: as dictionary keys, as bytes that can be sorted, and as key groups.

A key that is not hashable, or whose hash is that of one object alone, is *frozen* into a form that
is. Laws: equal keys have equal stand-ins, equal bytes and the same group in every process of a job,
though they may look different (1 and 1.0, a moment in two zones, a dict in another order); all NaN
are one key, and so are tuples and objects that hold NaN in the same place. Objects of other kinds
go by what pickle would ask of them: as records travel, no object is the same twice. A task owns a
range of groups that depends on its index, the parallelism and the number of groups alone.
"""

import marshal
import math
import zlib
from collections.abc import Hashable, Mapping, Set
from datetime import datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from numbers import Integral, Rational
from operator import is_
from types import BuiltinFunctionType, FunctionType
from typing import Final

from headgate.base.elements import Key
from headgate.base.moved import first_name
from headgate.core.state.equal_keys import NAN, canonical, is_scalar, local_time, parts_of

_BY_IDENTITY: Final = object.__hash__


_SINGLE: Final = (type(None), type(...), type, FunctionType, BuiltinFunctionType)
"""Types whose one object comes back, wherever it travels."""


_PLAIN: Final = frozenset({str, int, bytes, type(None)})


_EXACT: Final = _PLAIN | {bool}
"""Kinds of keys that are hashable and never NaN."""


_VERSION: Final = 2
"""Version of marshal: later ones write a text in two ways, interned or not, and refer back."""


_NAN_BYTES: Final = marshal.dumps(("number", "nan"), _VERSION)
"""Within the bytes of each key that holds one."""


_FAR: Final = 100_000
"""Decimals with so many digits before or after the point are told by their exponent.

The bytes of one are not those of an equal whole number, which nobody has for a key.
"""


class Frozen:
    """Stands for a key that is not hashable, or not equal to itself; equals what that equals."""

    __slots__ = ("form", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.form: Hashable = _frozen_form(key)

    def __eq__(self, other: object) -> bool:
        return bool(self.form == (other.form if type(other) is Frozen else other))

    def __hash__(self) -> int:
        return self.form.__hash__()

    def __reduce__(self) -> tuple[type["Frozen"], tuple[Key]]:
        return Frozen, (self.key,)

    def __repr__(self) -> str:
        return f"Frozen({self.key!r})"


def freeze(key: Key) -> Key:
    """The key itself if a dictionary finds it by what it holds, else a stand-in that is found."""
    kind = type(key)
    if kind in _EXACT or isinstance(key, _SINGLE):
        return key
    if is_scalar(kind):
        return NAN if canonical(key) is NAN else key
    if isinstance(key, tuple):
        if _EXACT.issuperset(map(type, key)):
            return key
        items = tuple(map(freeze, key))
        if all(map(is_, items, key)):
            return key
        return items if kind is tuple and Frozen not in map(type, items) else Frozen(key)
    try:
        kind.__hash__(key)  # type: ignore[call-arg] # of the class: a key may be a class too
    except TypeError:
        return Frozen(key)
    goes_by_identity = getattr(kind, "__hash__", None) is _BY_IDENTITY
    is_own = isinstance(key, Enum) or not (goes_by_identity or _holds_nan(key))
    return key if is_own else Frozen(key)


def _holds_nan(key: Key) -> bool:
    """Or another part that no dictionary would find again."""
    if isinstance(key, Set):
        return any(freeze(item) is not item for item in key)
    try:
        return _NAN_BYTES in key_bytes(key)
    except Exception:  # pickle cannot take it apart: its class alone says what it equals
        return False


def _frozen_form(key: Key) -> Hashable:
    """What is equal and has the same hash for equal keys, also for those that are hashable."""
    match key:
        case list():
            return Frozen, "list", tuple(map(freeze, key))
        case tuple():
            return tuple(map(freeze, key))
        case Set():
            return frozenset(map(freeze, key))
        case Mapping():
            items = frozenset((freeze(name), freeze(value)) for name, value in key.items())
            return Frozen, "mapping", items
        case bytearray():
            return bytes(key)
        case _:
            return Frozen, "object", key_bytes(key)


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
    local = local_time(key) if isinstance(key, datetime) else None
    key = canonical(key) if local is None else local
    match key:
        case str():
            return str.__str__(key)
        case bytes() | bytearray():
            return bytes(key)
        case Integral():
            return int(key)
        case float() | Decimal() | Rational():
            if isinstance(key, Decimal) and _is_far(key):
                return ("number", "far", *_scaled(key)) if key else 0
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
            parts = parts_of(key)
            if isinstance(parts, str):
                return ("name", parts)
            return ("object", *map(_bytes_form, parts))


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
    """32 bits that equal keys have in every process (``hash`` of a text differs).

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
    key = canonical(key)
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
            if isinstance(key, Decimal) and key.is_finite():
                if not key:
                    return _hash_bits(0)
                if math.isinf(key):
                    return _hash_bits(_large(key))
                if _is_far(key):
                    return _hash_bits(_scaled(key))
            ratio = _ratio(key)
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
            return _hash_bits(parts_of(key))


def _ratio(key: float | Decimal | Rational) -> tuple[int, int] | None:
    """A number as a fraction in lowest terms; None: it is infinite, or none."""
    if isinstance(key, Rational):
        return int(key.numerator), int(key.denominator)
    if not (key.is_finite() if isinstance(key, Decimal) else math.isfinite(key)):
        return None
    return key.as_integer_ratio()


def _is_far(key: Decimal) -> bool:
    """Whether its ratio would take long, or all memory. Equal decimals are far together."""
    return key.is_finite() and abs(key.adjusted()) > _FAR


def _scaled(key: Decimal) -> tuple[int, int]:
    """A number as its digits, without zeros at the end, and an exponent."""
    negative, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    end = len(digits)
    while end > 1 and not digits[end - 1]:
        end -= 1
    return int(Decimal((negative, digits[:end], 0))), exponent + len(digits) - end


def _large(key: Decimal) -> int | Fraction:
    """A number beyond the range of floats; if it is whole, the bits of it that have a say."""
    negative, digits, exponent = key.as_tuple()
    if not isinstance(exponent, int) or exponent < 0:
        return Fraction(key)
    number = int(Decimal((0, digits, 0))) * pow(10, exponent, 1 << 64)
    return (-number if negative else number) & 0xFFFFFFFFFFFFFFFF


def mix(bits: int) -> int:
    """Spreads 32 bits so that neighbours land far from each other."""
    bits &= 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return bits ^ (bits >> 16)
