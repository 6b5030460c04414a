"""Keys as dictionary keys: one that is not hashable is frozen into a form that is.

Law: equal keys have equal stand-ins, as they have the same key group; the order of a dict's or a
set's items does not count. Objects of other kinds are compared by their pickled bytes, also those
whose class says nothing about equality: as records travel, no object is the same twice.
"""

import math
import pickle
from collections.abc import Mapping, Set
from itertools import chain
from types import BuiltinFunctionType, FunctionType
from typing import Final

from headgate.base.elements import Key

NAN: Final = math.nan
"""The one object for keys that are NaN: none equals another, but a dictionary finds the same."""


class Frozen:
    """Stands for a key that is not hashable."""

    __slots__ = ("form", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.form = _form_of(key)

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


_BY_IDENTITY: Final = object.__hash__
_SINGLE: Final = (type(None), type(...), type, FunctionType, BuiltinFunctionType)
"""Of these the same object comes back, wherever it travels."""


def _form_of(key: Key) -> tuple[str, object]:
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
    make = getattr(type(key), "__headgate_key__", None)
    return key if make is None else make(key)
