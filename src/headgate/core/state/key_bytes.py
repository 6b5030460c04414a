"""Keys as bytes, to be compared and sorted where the keys themselves cannot be.

Law: keys that are equal have equal bytes, in every process of a job, though they may look different
(1 and 1.0, a dict in another order). Objects of other kinds go by what pickle would ask of them.
"""

import marshal
import math
from collections.abc import Iterator, Mapping, Set
from decimal import Decimal
from numbers import Integral, Rational
from types import BuiltinFunctionType, FunctionType
from typing import Final, TypeAlias

from headgate.base.elements import Key
from headgate.base.moved import first_name
from headgate.core.state.freezing import Frozen, canonical

_PLAIN: Final = frozenset({str, int, bytes, type(None)})
_VERSION: Final = 2
"""Of marshal: later ones write the same text in two ways, interned or not, and refer back."""

_Form: TypeAlias = object


def key_bytes(key: Key) -> bytes:
    """The bytes of a key, or of what stands for it while it is frozen."""
    if type(key) in _PLAIN:
        return marshal.dumps(key, _VERSION)
    if type(key) is Frozen:
        key = key.key
    return marshal.dumps(_form_of(key), _VERSION)  # type: ignore[arg-type]  # only what it writes


def _form_of(key: Key) -> _Form:
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
            return _number(key)
        case tuple():
            return ("tuple", *map(_form_of, key))
        case list():
            return ("list", *map(_form_of, key))
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
            return ("object", *[_form_of(_part(part)) for part in parts])


def _number(key: float | Decimal | Rational) -> _Form:
    if isinstance(key, Rational):
        above, below = int(key.numerator), int(key.denominator)
    elif key.is_finite() if isinstance(key, Decimal) else math.isfinite(key):
        above, below = key.as_integer_ratio()
    else:
        return ("number", repr(float(key)))
    return above if below == 1 else ("number", above, below)


def _part(part: object) -> object:
    return list(part) if isinstance(part, Iterator) else part
