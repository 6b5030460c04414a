"""Emission by value: a record belongs to its receiver once it was sent; nobody else can change it.

A function may keep what it returns and change it later, even within the same bundle. So its results
become the receiver's own before the function is called again: immutable values stay as they are,
flat collections get a shallow copy, the rest goes through pickle. Law: ``own(value)`` equals
``value`` and shares nothing mutable with it. Copies for several receivers of the same records are
made a bundle at a time, by the serializer.
"""

import builtins
import dis
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Final, TypeAlias

from headgate.base.elements import PickleSerializer, Record, Serializer
from headgate.base.errors import RecordUncopyable
from headgate.base.fields import TUPLES, FieldShape, RecordFields, Same
from headgate.base.values import ATOMS, own_result
from headgate.base.values import are_immutable as are_immutable
from headgate.base.values import own as own
from headgate.base.values import own_all as own_all
from headgate.core.inlining.definitions import Definition
from headgate.core.inlining.loops import (
    Loop,
    PartingLoop,
    body_of,
    each_loop,
    map_loop,
    parting_loop,
)
from headgate.core.inlining.made_records import RecordMakers


def is_pure(function: object) -> bool:
    """Whether a function surely keeps nothing: no names but of harmless builtins, nothing enclosed.

    Such a function makes its result out of its argument and of constants. It keeps nothing itself;
    the operators of the argument's class might. It may be wrong only on the safe side: a function
    that is not recognised has its results looked at.
    """
    if not isinstance(function, FunctionType):
        return False
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        return False
    return _is_pure_code(function.__code__, function.__globals__)


def only_carries(function: object) -> bool:
    """Whether a pure function puts its argument and constants somewhere and calls nothing at all.

    ``lambda word: (word, 1)``, for instance: whatever its argument is, no code of that runs.
    """
    return (
        is_pure(function)
        and isinstance(function, FunctionType)
        and all(step.opname in _CARRYING for step in dis.get_instructions(function.__code__))
    )


def carried_places(function: object) -> list[Same | None] | None:
    """The items of the tuple that such a function returns, None for its argument.

    None in all: it returns no tuple with its argument in it.
    """
    if not only_carries(function) or not isinstance(function, FunctionType):
        return None
    code = function.__code__
    if code.co_argcount != 1 or code.co_kwonlyargcount or len(code.co_varnames) != 1:
        return None  # what is loaded may be something else
    steps = [step for step in dis.get_instructions(function.__code__) if step.opname not in _IDLE]
    loads, rest = steps[:-2], steps[-2:]
    if [step.opname for step in rest] != ["BUILD_TUPLE", "RETURN_VALUE"]:
        return None
    if rest[0].arg != len(loads):
        return None
    if not {step.opname for step in loads} <= {"LOAD_FAST", "LOAD_CONST"}:
        return None
    items = [Same(step.argval) if step.opname == "LOAD_CONST" else None for step in loads]
    return items if None in items else None


def _is_pure_code(code: CodeType, names: dict[str, object]) -> bool:
    for name in code.co_names:
        if name in names or name not in _HARMLESS or not hasattr(builtins, name):
            return False
    return all(_is_pure_code(part, names) for part in code.co_consts if isinstance(part, CodeType))


_HARMLESS: Final = frozenset(
    {"abs", "bool", "bytes", "chr", "divmod", "float", "format", "int", "len", "max", "min"}
    | {"ord", "repr", "round", "str", "sum", "tuple"}
)

_CARRYING: Final = frozenset(
    {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "STORE_FAST", "LOAD_FAST"}
    | {"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"}
    | {"BUILD_TUPLE", "BUILD_LIST", "BUILD_CONST_KEY_MAP"}
)
"""Instructions that run no code of the values they move, in CPython 3.10 to 3.13."""

_IDLE: Final = ("RESUME", "NOP")


class Emission:
    """Calls a user's function for each record of a bundle and makes the results the receiver's own.

    Each result is looked at before the function is called again: a list that the function keeps may
    have changed by then. Immutable values, and pairs of them, are recognised without a call.
    """

    def __init__(
        self, call: Callable[[Record], Record], free: bool = False, takes_over: bool = False
    ) -> None:
        """``free``: nothing needs to be copied, objects are reused.

        ``takes_over``: the records are the function's from now on; if it returns one of them, the
        list that they came in does not count as another holder.
        """
        self._call = call
        self._takes_over = takes_over
        self._loop: Loop | None = None
        self._own_loop: Loop | None = None
        self._is_free = free or only_carries(call)
        self._keeps_nothing = free or is_pure(call)
        self._carried = carried_places(call)
        self._makers: RecordMakers | None = None
        self._parting: PartingLoop | None = None
        self._free_parting: PartingLoop | None = None

    def inline(self, definitions: Iterable[Definition]) -> None:
        """Write the function into the loops, if one of these is its definition and short enough."""
        body = body_of(self._call, 1, definitions)
        if body is None:
            return
        self._makers = makers = RecordMakers(body.function)
        self._loop = map_loop(self._call, body)
        self._own_loop = each_loop(self._call, body, makers, LOOKS)
        if self._carried is None:
            self._parting = parting_loop(self._call, body, makers, LOOKS, by_value=True)
            if self._keeps_nothing:
                self._free_parting = parting_loop(self._call, body, makers, LOOKS, by_value=False)

    def made_shape(self) -> tuple[FieldShape, int] | None:
        """What ``fields`` gives, and how many fields that has; None: nothing."""
        if self._carried is not None:
            return TUPLES, len(self._carried)
        return None if self._parting is None else (self._parting.shape, len(self._parting.same))

    def passes_as_is(self, records: list[Record]) -> bool:
        """Whether the function may see these records and they still need no copy to be sent on."""
        return self._keeps_nothing or are_immutable(records)

    def results(self, records: Iterable[Record]) -> list[Record]:
        call, atoms, references = self._call, ATOMS, sys.getrefcount
        self._check_makers()
        if self._is_free or (self._keeps_nothing and _are_atoms(records)):
            if self._loop is not None:
                return self._loop(records)  # type: ignore[no-any-return]
            return [call(record) for record in records]
        held = HOLDERS_OF_RECORD if self._takes_over and type(records) is list else 0
        if self._own_loop is not None and held:
            found: list[Record] = []
            self._own_loop(records, found.append)
            return found
        return [
            value
            if (
                len(value) == 2 and type(value[0]) in atoms and type(value[1]) in atoms
                if (kind := type(value := call(record))) is tuple
                else kind in atoms
            )
            else own_result(references(value) - (held if value is record else 0), value)
            for record in records
        ]

    def fields(self, records: list[Record]) -> RecordFields | None:
        """The results, taken apart; None: they have to be asked for as they are."""
        self._check_makers()
        if self._carried is not None:
            carried = [list(records) if place is None else place for place in self._carried]
            return RecordFields(carried, len(records))
        parting = self._parting
        if self._free_parting is not None and (self._is_free or _are_atoms(records)):
            parting = self._free_parting
        return None if parting is None else parting.fields(records)

    def _check_makers(self) -> None:
        """A class that the function makes records of may be another one now: then call it."""
        if self._makers is not None and not self._makers.hold():
            self._makers = self._own_loop = self._parting = self._free_parting = None

    def each(self, records: list[Record]) -> Callable[[Iterator[Record]], Iterator[Record]]:
        """What yields the same results one by one, for a bundle of these records."""
        if self._is_free or (self._keeps_nothing and _are_atoms(records)):
            call = self._call
            return lambda visited: (call(record) for record in visited)
        return self._each_own

    def _each_own(self, visited: Iterator[Record]) -> Iterator[Record]:
        call, atoms, references = self._call, ATOMS, sys.getrefcount
        for record in visited:
            value = call(record)
            yield (
                value
                if (
                    len(value) == 2 and type(value[0]) in atoms and type(value[1]) in atoms
                    if (kind := type(value)) is tuple
                    else kind in atoms
                )
                else own_result(references(value), value)
            )


HOLDERS_OF_RECORD: Final = 2
"""A function may return its record: the bundle's list holds it, and the variable of the loop."""

Kinds: TypeAlias = tuple[type | None, type | None, type | None]
"""The kind of a value, and those of the parts of a pair; None: it is to be looked at again."""


def look(send: Callable[[Record], None], references: int, value: Record) -> Kinds:
    """Send the receiver's own value; returns the kinds of which values are immutable.

    ``references``: to the value, as ``own_result`` wants them.
    """
    kinds = immutable_kinds(value)
    send(own_result(references, value) if kinds is None else value)
    return kinds or NO_KINDS


def immutable_kinds(value: Record) -> Kinds | None:
    """Of a value that is immutable, or of a pair of them; None: it may be changed.

    Of longer tuples there is no kind to remember: each is looked at.
    """
    kind = type(value)
    if kind in ATOMS:
        return kind, None, None
    if kind is tuple and ATOMS.issuperset(map(type, value)):
        return (None, type(value[0]), type(value[1])) if len(value) == 2 else NO_KINDS
    return None


NO_KINDS: Final = (None, None, None)


def look_items(
    send: Callable[[Record], None], value: Record, items: tuple[Record, ...]
) -> list[type | None]:
    """The same for a new tuple, of which ``items`` may be mutable."""
    kinds = [kind if (kind := type(item)) in ATOMS else None for item in items]
    send(own(value) if None in kinds else value)
    return kinds


def look_parts(lists: Sequence[list[Record]], items: Sequence[Record]) -> list[type | None]:
    """Add the receiver's own items to their lists; returns the kinds that are immutable."""
    kinds: list[type | None] = []
    for place, item in zip(lists, items, strict=True):
        is_atom = type(item) in ATOMS
        place.append(item if is_atom else own(item))
        kinds.append(type(item) if is_atom else None)
    return kinds


LOOKS: Final[dict[str, object]] = {
    "look": look,
    "look_items": look_items,
    "look_parts": look_parts,
}
"""What loops with inlined functions send values by that they do not know."""


def _are_atoms(records: Iterable[Record]) -> bool:
    """Whether no operator of a user's class can run when these are computed with."""
    return isinstance(records, list | range) and ATOMS.issuperset(map(type, records))


class Copier:
    """Copies the records of one output; ``operator`` is the one that reads the copies."""

    def __init__(self, operator: str, serializer: Serializer | None = None) -> None:
        self._operator = operator
        self._serializer = serializer or PickleSerializer()

    def copy(self, records: list[Record]) -> list[Record]:
        """The same records, safe to be changed; the list itself if nothing can be."""
        if are_immutable(records):
            return records
        try:
            data = self._serializer.dumps(records)
            return self._serializer.loads(memoryview(data))  # type: ignore[no-any-return]
        except Exception as error:
            raise RecordUncopyable(self._operator, error) from error
