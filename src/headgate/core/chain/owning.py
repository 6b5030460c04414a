"""Emission by value: a record that was sent belongs to its receiver, nobody else can change it.

Functions may keep what they return and change it later, also within the same bundle. So what they
return is made the receiver's own at once: immutable values stay as they are, flat collections get a
shallow copy, the rest goes through pickle. Law: ``own(value)`` equals ``value`` and shares nothing
with it that can be changed.
"""

import builtins
import math
import pickle
from collections.abc import Callable
from enum import Enum
from operator import is_
from types import CodeType, FunctionType
from typing import Final

from headgate.base.elements import Record
from headgate.core.chain.copying import ATOMS, are_immutable


def own(value: Record) -> Record:
    """The value itself if nobody can change it, otherwise a copy."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict:
        for item in value.values():
            if type(item) not in ATOMS:
                return {own(key): own(item) for key, item in value.items()}
        return value.copy()
    if kind is list:
        return [item if type(item) in ATOMS else own(item) for item in value]
    if kind is tuple:
        for item in value:
            if type(item) not in ATOMS:
                owned = [own(item) for item in value]
                return value if all(map(is_, owned, value)) else tuple(owned)
        return value
    return _own_rare(value, kind)


def own_all(records: list[Record]) -> list[Record]:
    """The same for many; the list itself if nothing in it can be changed."""
    return records if are_immutable(records) else [own(record) for record in records]


def _own_rare(value: Record, kind: Record) -> Record:
    plain = _PLAIN.get(kind)
    if plain is None:
        if len(_PLAIN) >= _KNOWN_KINDS:
            _PLAIN.clear()
        plain = _PLAIN[kind] = _is_plain(kind)
    if plain:
        twin = kind.__new__(kind)
        twin.__dict__.update(own(value.__dict__))
        return twin
    if isinstance(value, Enum | type | FunctionType):
        return value
    copier = getattr(kind, "__headgate_own__", None)
    if copier is not None:
        return copier(value)
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except Exception as error:
        raise TypeError(
            f"a record with a {kind.__name__} cannot be copied ({error}); records must be "
            f"picklable, or turn copies off with pipeline.object-reuse: true"
        ) from error


def _is_plain(kind: Record) -> bool:
    """Whether an instance is what its ``__dict__`` holds and nothing more."""
    return (
        kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind.__new__ is object.__new__
        and kind.__flags__ & _HEAP_TYPE != 0
        and kind.__basicsize__ == _Plain.__basicsize__
        and not issubclass(kind, Enum)
        and not any(hasattr(kind, name) for name in _CUSTOM)
        and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)
        and not any("__slots__" in base.__dict__ for base in kind.__mro__)
    )


class _Plain:
    """An instance of it has a ``__dict__`` and nothing else."""


_PLAIN: Final[dict[type, bool]] = {}
_KNOWN_KINDS: Final = 1024
_HEAP_TYPE: Final = 1 << 9
_CUSTOM: Final = ("__headgate_own__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


def is_pure(function: object) -> bool:
    """Whether a function surely keeps nothing: no names but of harmless builtins, nothing enclosed.

    Such a function makes its result out of its argument, which is its own, and of constants. It may
    be wrong only on the safe side: a function that is not recognised has its results copied.
    """
    if not isinstance(function, FunctionType):
        return False
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        return False
    return _is_pure_code(function.__code__, function.__globals__)


def _is_pure_code(code: CodeType, names: dict[str, object]) -> bool:
    for name in code.co_names:
        if name in names or name not in _HARMLESS or not hasattr(builtins, name):
            return False
    return all(_is_pure_code(part, names) for part in code.co_consts if isinstance(part, CodeType))


_HARMLESS: Final = frozenset(
    {"abs", "bool", "bytes", "chr", "divmod", "float", "format", "int", "len", "max", "min"}
    | {"ord", "repr", "round", "str", "sum", "tuple"}
)


PROOFS: Final = 32
"""After so many results that nobody can change a function is taken at its word.

Before that, and for good once a result could be changed, each one is made the receiver's own.
"""


class Emission:
    """Calls a user's function for each record of a bundle and makes the results the receiver's own.

    A function whose results were immutable so far is called in one sweep, and the results are
    looked at afterwards. Otherwise each is made own before the function is called again.
    """

    def __init__(self, call: Callable[[Record], Record], free: bool = False) -> None:
        """``free``: nothing needs to be copied, the function is pure or objects are reused."""
        self._call = call
        self.is_free = free or is_pure(call)
        self._unproven: float = PROOFS

    def results(self, records: list[Record]) -> list[Record]:
        call = self._call
        if self.is_free:
            return [call(record) for record in records]
        if self._unproven:
            results = [own(call(record)) for record in records]
            self._unproven = less_unproven(self._unproven, results, len(results))
            return results
        results = [call(record) for record in records]
        owned = own_all(results)
        if owned is not results:
            self._unproven = math.inf
        return owned


def less_unproven(unproven: float, results: list[Record], calls: int) -> float:
    """How many proofs are missing after so many calls; infinitely many if one failed."""
    if unproven == math.inf or not are_immutable(results):
        return math.inf
    return max(0.0, unproven - calls)
