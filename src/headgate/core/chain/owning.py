"""Emission by value: a record that was sent belongs to its receiver, nobody else can change it.

Functions may keep what they return and change it later, also within the same bundle. So what they
return is made the receiver's own at once: immutable values stay as they are, flat collections get a
shallow copy, the rest goes through pickle. Law: ``own(value)`` equals ``value`` and shares nothing
with it that can be changed.
"""

import builtins
import math
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Final

from headgate.base.elements import Record
from headgate.base.values import are_immutable
from headgate.base.values import own as own
from headgate.base.values import own_all as own_all


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

    def results(self, records: Iterable[Record]) -> list[Record]:
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
