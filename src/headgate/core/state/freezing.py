"""Keys as dictionary keys: one that is not hashable is frozen into a form that is.

Law: equal keys have equal stand-ins, as they have the same key group; the order of a dict's or a
set's items does not count. Objects of other kinds are compared by their pickled bytes.
"""

import pickle
from collections.abc import Mapping, Set

from headgate.base.elements import Key


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
    """The key itself if it is hashable, else a stand-in that is."""
    try:
        type(key).__hash__(key)  # type: ignore[call-arg] # of the class: a key may be a class too
    except TypeError:
        return Frozen(key)
    return key


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
            return "object", pickle.dumps(key, 5)
