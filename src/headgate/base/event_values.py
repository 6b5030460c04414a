"""The values that a task event may hold, and their bytes: plain data of a closed set of types.

Law: what comes back is equal to what went, with equal types, and reading runs nobody's code: no
class is looked up, nothing is called, whatever the bytes are. MessagePack holds what it knows; the
rest (tuples, sets, integers of more than 64 bits) are extensions of it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.msgpack import Ext

from headgate.base.errors import ElementBroken, EventUnsendable

_TUPLE, _SET, _FROZENSET, _LONG = range(1, 5)
_ARRAYS: Final[dict[type, int]] = {tuple: _TUPLE, set: _SET, frozenset: _FROZENSET}
_ATOMS: Final = frozenset({type(None), bool, float, str, bytes})
_INT_BITS: Final = 63
"""Longer integers go as bytes; MessagePack has one bit more, for those above zero."""


def pack_values(event: str, values: Mapping[str, object]) -> bytes:
    """The bytes of an event's attributes; EventUnsendable names the one that cannot travel."""
    packed = {}
    for name, value in values.items():
        try:
            packed[name] = _packed(value)
            _ENCODER.encode(packed[name])
        except (TypeError, ValueError, RecursionError) as error:
            raise EventUnsendable(event, name, str(error)) from error
    return _ENCODER.encode(packed)


def unpack_values(data: bytes | memoryview) -> dict[str, object]:
    """The attributes again; ElementBroken if the bytes hold none."""
    try:
        return _VALUES.decode(data)
    except Exception as error:
        raise ElementBroken(f"{len(data)} bytes hold no attributes: {error}") from error


def _packed(value: object) -> object:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, int) and kind is int:
        if value.bit_length() <= _INT_BITS:
            return value
        return Ext(_LONG, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    if isinstance(value, list) and kind is list:
        return [_packed(item) for item in value]
    if isinstance(value, dict) and kind is dict:
        return {_packed_key(key): _packed(item) for key, item in value.items()}
    if isinstance(value, tuple | set | frozenset) and kind in _ARRAYS:
        return Ext(_ARRAYS[kind], _ENCODER.encode([_packed(item) for item in value]))
    raise TypeError(f"holds a {kind.__qualname__}")


def _packed_key(key: object) -> object:
    if type(key) in _ATOMS or (isinstance(key, int) and -(2**63) <= key < 2**63):
        return key
    raise TypeError(f"holds a dict with a {type(key).__qualname__} as key")


def _unpacked(code: int, data: memoryview) -> object:
    if code == _TUPLE:
        return tuple(_ITEMS.decode(data))
    if code == _SET:
        return set(_ITEMS.decode(data))
    if code == _FROZENSET:
        return frozenset(_ITEMS.decode(data))
    if code == _LONG:
        return int.from_bytes(data, "little", signed=True)
    raise ValueError(f"extension {code} is not known")


_ENCODER: Final = msgspec.msgpack.Encoder()
_ITEMS: Final = msgspec.msgpack.Decoder(list[object], ext_hook=_unpacked)
_VALUES: Final = msgspec.msgpack.Decoder(dict[str, object], ext_hook=_unpacked)
