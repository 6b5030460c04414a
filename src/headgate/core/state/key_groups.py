"""Key groups: what keys and their state are bundled in, so that a job can be scaled.

Law: equal keys have the same group in every process; a task owns a range of groups that depends on
its index, the parallelism and the number of groups alone.
"""

import math
import zlib
from collections.abc import Iterator, Mapping, Set
from decimal import Decimal
from numbers import Integral, Rational
from types import BuiltinFunctionType, FunctionType

from headgate.base.elements import Key
from headgate.base.moved import first_name
from headgate.core.state.freezing import canonical


def groups_of(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups that a task owns."""
    first = (subtask * max_parallelism + parallelism - 1) // parallelism
    last = ((subtask + 1) * max_parallelism + parallelism - 1) // parallelism
    return range(first, last)


def key_group(key: Key, max_parallelism: int) -> int:
    """The group that a key and its state belong to."""
    return stable_hash(key) % max_parallelism


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
            return _hash_number(key)
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


def _hash_number(key: float | Decimal | Rational) -> int:
    if isinstance(key, Rational):
        above, below = int(key.numerator), int(key.denominator)
    elif math.isfinite(key):
        above, below = key.as_integer_ratio()
    else:
        return _hash_bits(repr(float(key)))
    return _hash_bits(above if below == 1 else [above, below])


def _comparable(part: object) -> object:
    return list(part) if isinstance(part, Iterator) else part


def mix(bits: int) -> int:
    """Spreads 32 bits so that neighbours land far from each other."""
    bits &= 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return bits ^ (bits >> 16)
