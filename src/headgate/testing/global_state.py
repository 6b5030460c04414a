"""Data in module variables, class attributes and defaults of the user's own modules.

A simulated run must not find there what the run before has left. Law: every run begins with what
was there before the first; what is not plain data is left alone.
"""

import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

from headgate.testing.virtual_time import user_modules

_CONTAINERS: Final = (dict, list, set, deque, Counter, defaultdict, OrderedDict)
_ATOMS: Final = (int, float, str, bytes, bool, type(None))
MOST_BYTES: Final = 1 << 20
"""Larger ones are taken for constants."""


class _Place:
    """Where a value is held: a dictionary of names, or the container itself."""

    def __init__(self, module: str, title: str, owner: Any, name: str, data: bytes) -> None:
        self.module = module
        self.title = f"{module}.{title}"
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
    """The data as it is when this object is made."""

    def __init__(self) -> None:
        self._places = list(_places())
        self._changed: dict[str, None] = {}

    def reset(self) -> None:
        """Restore all values; remembers which had changed."""
        for place in self._places:
            if place.has_changed():
                self._changed[place.title] = None
                place.restore()

    def narrow(self, modules: set[str]) -> None:
        """Watch only these modules, and those in which a run has changed something."""
        self.reset()
        concerned = modules | {
            place.module for place in self._places if place.title in self._changed
        }
        self._places = [place for place in self._places if place.module in concerned]

    def changed(self) -> list[str]:
        """Names of what runs have changed."""
        self.reset()
        return list(self._changed)


def _places() -> Iterator[_Place]:
    for module in user_modules():
        for title, owner, name, value in _data_of(module):
            data = _pickled(value)
            if data is not None and len(data) <= MOST_BYTES:
                yield _Place(module.__name__, title, owner, name, data)


def _data_of(module: ModuleType) -> Iterator[tuple[str, Any, str, object]]:
    """Name, owner, name within the owner, and value."""
    for name, value in list(vars(module).items()):
        if name.startswith("__"):
            continue
        if _is_data(value):
            yield name, vars(module), name, value
        elif getattr(value, "__module__", None) != module.__name__:
            continue
        elif isinstance(value, type):
            for attribute, held in list(vars(value).items()):
                if not attribute.startswith("__") and _is_data(held):
                    yield f"{name}.{attribute}", value, attribute, held
        elif isinstance(value, FunctionType):
            for number, held in enumerate(value.__defaults__ or (), 1):
                if type(held) in _CONTAINERS:
                    yield f"{name}, default {number}", {"held": held}, "held", held


def _is_data(value: object) -> bool:
    return isinstance(value, _ATOMS) or type(value) in _CONTAINERS


def _held(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)


def _pickled(value: object) -> bytes | None:
    try:
        return pickle.dumps(value, 5)
    except Exception:
        return None
