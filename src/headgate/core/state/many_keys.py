"""Key groups of many keys at once: of whole numbers, without a Python step for each.

Law: the groups are those that ``key_group`` has for each of the keys.
"""

from typing import TypeAlias

import numpy as np

from headgate.base.elements import Record

Numbers: TypeAlias = Record
"""An array of numpy, with a whole number for each row."""


def int_groups(numbers: Numbers, max_parallelism: int) -> Numbers:
    """The groups of whole numbers."""
    low = numbers.astype(np.uint64, copy=False) & np.uint64(0xFFFFFFFF)
    signed = numbers.dtype.kind == "i"
    wide = numbers.astype(np.int64 if signed else np.uint64, copy=False)
    high = (wide >> wide.dtype.type(32)).astype(np.uint32)
    return _mix(_mix(low.astype(np.uint32)) ^ high) % np.uint32(max_parallelism)


def _mix(bits: Numbers) -> Numbers:
    """As ``mix`` has it, of 32 bits each; sums that are too long wrap around."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> np.uint32(16))
