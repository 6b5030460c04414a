"""Data in module variables, class attributes and defaults of the user's own modules.

A simulated run must not find there what the run before has left. Law: every run begins with what
was there before the first; what is not plain data is left alone.
"""

import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final

from headgate.testing.virtual_time import user_modules

_CONTAINERS: Final = (dict, list, set, deque, Counter, defaultdict, OrderedDict)
_ATOMS: Final = (int, float, str, bytes, bool, type(None))
MOST_BYTES: Final = 1 << 20
"""Larger ones are taken for constants."""


class _Place:
    """Where a value is held: a dictionary of names, or the container itself."""

    def __init__(self, title: str, owner: Any, name: str, data: bytes) -> None:
        self.title = title
        self._owner = owner
        self._name = name
        self._data = data

    def has_changed(self) -> bool:
        return _pickled(_held(self._owner, self._name)) != self._data

    def restore(self) -> None:
        held, before = _held(self._owner, self._name), pickle.loads(self._data)
        if type(held) is type(before) and isinstance(held, _CONTAINERS):
            held.clear()
            held.extend(before) if isinstance(held, list | deque) else held.update(before)
        elif isinstance(self._owner, dict):
            self._owner[self._name] = before
        else:
            setattr(self._owner, self._name, before)


class GlobalState:
    """As it is when this is made."""

    def __init__(self) -> None:
        self._places = list(_places())
        self._changed: dict[str, None] = {}

    def reset(self) -> None:
        """Put everything back; remembers what has changed."""
        for place in self._places:
            if place.has_changed():
                self._changed[place.title] = None
                place.restore()

    def changed(self) -> list[str]:
        """Names of what runs have changed."""
        self.reset()
        return list(self._changed)


def _places() -> Iterator[_Place]:
    for module in user_modules():
        for name, value in list(vars(module).items()):
            if name.startswith("__"):
                continue
            title = f"{module.__name__}.{name}"
            if isinstance(value, _ATOMS) or type(value) in _CONTAINERS:
                yield from _place(title, vars(module), name, value)
            elif isinstance(value, type) and value.__module__ == module.__name__:
                for attribute, held in list(vars(value).items()):
                    if not attribute.startswith("__") and (
                        isinstance(held, _ATOMS) or type(held) in _CONTAINERS
                    ):
                        yield from _place(f"{title}.{attribute}", value, attribute, held)
            elif isinstance(value, FunctionType) and value.__module__ == module.__name__:
                for number, held in enumerate(value.__defaults__ or ()):
                    if type(held) in _CONTAINERS:
                        owner = {"held": held}
                        yield from _place(f"default {number + 1} of {title}", owner, "held", held)


def _place(title: str, owner: Any, name: str, value: object) -> Iterator[_Place]:
    data = _pickled(value)
    if data is not None and len(data) <= MOST_BYTES:
        yield _Place(title, owner, name, data)


def _held(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)


def _pickled(value: object) -> bytes | None:
    try:
        return pickle.dumps(value, 5)
    except Exception:
        return None
