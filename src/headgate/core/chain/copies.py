"""Emission by value: a record belongs to its receiver once it was sent; nobody else can change it.

A function may keep what it returns and change it later, even within the same bundle. So its results
become the receiver's own before the function is called again: immutable values stay as they are,
flat collections get a shallow copy, the rest goes through pickle. Law: ``own(value)`` equals
``value`` and shares nothing mutable with it. Copies for several receivers of the same records are
made a bundle at a time, by the serializer.
"""

import builtins
import dis
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Final, NamedTuple

from headgate.base.elements import Bundle, PickleSerializer, Record, Serializer
from headgate.base.errors import RecordUncopyable
from headgate.base.fields import Same
from headgate.base.values import ATOMS, SOLE_HOLDER, Look, look_of
from headgate.base.values import are_immutable as are_immutable
from headgate.base.values import own as own
from headgate.base.values import own_all as own_all


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


class Kinds(NamedTuple):
    """What is known of the values that a place of a program sends; None: look at the next one."""

    atom: type | None = None
    """Of values that nobody can change."""
    first: type | None = None
    """Of the parts of a pair that nobody can change."""
    second: type | None = None
    mutable: type | None = None
    """Of values that are copied, unless nobody else holds them and ``look`` says yes."""
    look: Look | None = None


NO_KINDS: Final = Kinds()


def look(send: Callable[[Record], None], references: int, value: Record) -> Kinds:
    """Send the receiver's own value; returns what needs no such look the next time.

    ``references``: to the value, as ``own_result`` wants them.
    """
    kind = type(value)
    kinds = immutable_kinds(kind, value)
    if kinds is not None:
        send(value)
        return kinds
    return look_at_mutable(send, references, kind, value)


def look_at_mutable(
    send: Callable[[Record], None], references: int, kind: type, value: Record
) -> Kinds:
    """Like ``look``, for a value that can be changed."""
    is_own = look_of(kind)
    send(value if references == SOLE_HOLDER and is_own(value) else own(value))
    return Kinds(None, None, None, kind, is_own)


def immutable_kinds(kind: type, value: Record) -> Kinds | None:
    """Of a value that is immutable, or of a pair of them; None: it may be changed.

    Of longer tuples there is no kind to remember: each is looked at.
    """
    if kind in ATOMS:
        return Kinds(kind)
    if kind is tuple and ATOMS.issuperset(map(type, value)):
        return Kinds(None, type(value[0]), type(value[1])) if len(value) == 2 else NO_KINDS
    return None


def look_items(
    send: Callable[[Record], None], value: Record, items: tuple[Record, ...]
) -> list[type | None]:
    """Like ``look``, for a new tuple, of which ``items`` may be mutable."""
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
    "own": own,
    "sole_holder": SOLE_HOLDER,
}
"""By what loops send values that they do not know."""


def is_immutable(bundle: Bundle) -> bool:
    """Whether nobody can change any of the records: several receivers ask, the first one looks."""
    if bundle.known_immutable is None:
        bundle.known_immutable = are_immutable(bundle.records)
    return bundle.known_immutable


class Copier:
    """Copies the records of one output; ``operator`` is the one that reads the copies."""

    def __init__(self, operator: str, serializer: Serializer | None = None) -> None:
        self._operator = operator
        self._serializer = serializer or PickleSerializer()

    def copy(self, bundle: Bundle) -> Bundle:
        """The same records, safe to be changed; the bundle itself if nothing can be."""
        if is_immutable(bundle):
            return bundle
        try:
            data = self._serializer.dumps(bundle.records)
            records = self._serializer.loads(memoryview(data))
        except Exception as error:
            raise RecordUncopyable(self._operator, error) from error
        return Bundle(records, bundle.timestamps)
