"""Reads the bytes of keys, and of values that releases up to 0.1 have written.

They are what ``marshal`` writes in its version 2, and are not given to ``marshal`` again, which is
not made for bytes that somebody else wrote: a reference to a tuple that is not finished
ends the process. Law: only numbers, texts, bytes, booleans, None and tuples are read; anything
else, what is cut, and what is nested deeper than ``MOST_NESTED``, raises ValueError, and no more
memory is taken than a few times the length of the bytes.
"""

import struct
from typing import Final

from headgate.base.elements import Record

MOST_NESTED: Final = 500
"""How deep tuples may nest: Python hashes one without a look at its stack; no job has more."""
TUPLE: Final = ord("(")

_NONE, _TRUE, _FALSE, _INT, _LONG, _FLOAT, _TEXT, _BYTES = b"NTFilgus"
_ATOMS: Final = {_NONE: None, _TRUE: True, _FALSE: False}
_DIGIT_BITS: Final = 15
"""Bits in a digit of an integer that 32 bits do not hold; a digit takes two bytes."""
_DIGITS_AT_ONCE: Final = 8
"""They fill whole bytes, so that long integers are read in linear time."""
_number = struct.Struct("<i").unpack_from
_double = struct.Struct("<d").unpack_from


def read_form(data: bytes) -> Record:
    """What all of these bytes stand for; raises ValueError."""
    try:
        code, rest = data[0], len(data) - 5
        if code == _TEXT and _number(data, 1)[0] == rest:  # as below, in half the time
            return data[5:].decode("utf-8", "surrogatepass")
        if code == _INT and not rest:
            return _number(data, 1)[0]
        form, end = _read(data, 0)
    except (IndexError, struct.error) as error:
        raise _cut() from error
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow a key or value in a database")
    return form


def read_form_at(data: bytes, start: int) -> tuple[Record, int]:
    """What stands from here on, and where it ends; raises ValueError."""
    try:
        return _read(data, start)
    except (IndexError, struct.error) as error:
        raise _cut() from error


def _read(data: bytes, start: int) -> tuple[Record, int]:
    return _read_tuple(data, start + 1, 1) if data[start] == TUPLE else _read_atom(data, start)


def _read_atom(data: bytes, start: int) -> tuple[Record, int]:
    code, at = data[start], start + 1
    if code == _INT:
        return _number(data, at)[0], at + 4
    if code in _ATOMS:
        return _ATOMS[code], at
    if code in (_TEXT, _BYTES):
        at += 4
        end = at + _number(data, start + 1)[0]
        if not at <= end <= len(data):
            raise _cut()
        held = data[at:end]
        return held.decode("utf-8", "surrogatepass") if code == _TEXT else held, end
    if code == _FLOAT:
        return _double(data, at)[0], at + 8
    if code == _LONG:
        (size,) = _number(data, at)
        digits = struct.unpack_from(f"<{abs(size)}H", data, at + 4)
        return _whole(digits) if size > 0 else -_whole(digits), at + 4 + 2 * abs(size)
    raise ValueError(f"a key or value in a database begins with {code:#x}, as none does")


def _read_tuple(data: bytes, start: int, depth: int) -> tuple[tuple[Record, ...], int]:
    if depth > MOST_NESTED:
        raise ValueError(f"a key in a database is nested more than {MOST_NESTED:,} deep")
    (size,) = _number(data, start)
    at = start + 4
    if not 0 <= size <= len(data) - at:  # each item has a byte at least
        raise _cut()
    items: list[Record] = []
    for _ in range(size):
        code = data[at]
        if code == _TEXT:  # as in ``_read_atom``, without a call
            start, end = at + 5, at + 5 + _number(data, at + 1)[0]
            if not start <= end <= len(data):
                raise _cut()
            items.append(data[start:end].decode("utf-8", "surrogatepass"))
            at = end
        elif code == _INT:
            items.append(_number(data, at + 1)[0])
            at += 5
        else:
            nested = code == TUPLE
            item, at = _read_tuple(data, at + 1, depth + 1) if nested else _read_atom(data, at)
            items.append(item)
    return tuple(items), at


def _whole(digits: tuple[int, ...]) -> int:
    """An integer of its digits, the least significant first."""
    parts = []
    for start in range(0, len(digits), _DIGITS_AT_ONCE):
        part = 0
        for digit in reversed(digits[start : start + _DIGITS_AT_ONCE]):
            if digit >> _DIGIT_BITS:
                raise ValueError(f"a number in a database has the digit {digit}")
            part = part << _DIGIT_BITS | digit
        parts.append(part.to_bytes(_DIGIT_BITS, "little"))
    return int.from_bytes(b"".join(parts), "little")


def _cut() -> ValueError:
    return ValueError("a key or value in a database is cut")
