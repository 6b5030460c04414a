"""Key groups of many keys at once: of whole numbers and texts, without a Python step for each.

Law: the groups are those that ``key_group`` has for each of the keys.
"""

from typing import TypeAlias
from zlib import crc32

import numpy as np

from headgate.base.elements import Key, Record

Numbers: TypeAlias = Record
"""An array of numpy, with a whole number for each row."""


def groups_of_keys(keys: list[Key], max_parallelism: int) -> Numbers | None:
    """An array with the group of each key; None: they have to be asked for one by one."""
    kinds = set(map(type, keys))
    try:
        if kinds == {int}:
            return int_groups(np.array(keys, dtype=np.int64), max_parallelism)
        if kinds == {str}:
            sums = np.fromiter(map(crc32, map(str.encode, keys)), dtype=np.uint32, count=len(keys))
            return _mix(sums) % np.uint32(max_parallelism)
    except (OverflowError, UnicodeEncodeError):  # more than 64 bits, half of a surrogate pair
        pass
    return None


def int_groups(numbers: Numbers, max_parallelism: int) -> Numbers:
    """The groups of whole numbers."""
    low = numbers.astype(np.uint64, copy=False) & np.uint64(0xFFFFFFFF)
    signed = numbers.dtype.kind == "i"
    wide = numbers.astype(np.int64 if signed else np.uint64, copy=False)
    high = (wide >> wide.dtype.type(32)).astype(np.uint32)
    return _mix(_mix(low.astype(np.uint32)) ^ high) % np.uint32(max_parallelism)


def _mix(bits: Numbers) -> Numbers:
    """``mix`` for an array of 32-bit numbers; sums that are too long wrap around."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> np.uint32(16))
