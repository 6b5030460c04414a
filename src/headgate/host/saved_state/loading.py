"""Makes objects of the pickles in a checkpoint, without a job and mostly without its classes.

Law of ``SafeLoader``: whatever the bytes say, nothing is imported, nothing is called but classes of
plain data that are listed here, and nothing is changed but objects that this load has made; one of
any other class becomes a ``StandIn``, which shows the name of the class and what it was made of.
``load_classes`` does what a restore does: it imports what the pickles name, so it is for
checkpoints that may as well be restored. Python hashes a tuple by hashing what it holds, and does
not check its stack: a million nested tuples end the process. So ``check_nesting`` refuses a pickle
that is nested deeper than ``MOST_NESTED`` before an object is made of it.
"""

import builtins
import collections
import copyreg
import datetime
import decimal
import fractions
import io
import pickle
import pickletools
import re
import uuid
import zoneinfo
from collections.abc import Callable, Iterable
from reprlib import recursive_repr
from types import FunctionType
from typing import Any, Final, TypeVar

import msgspec

from headgate.api import row
from headgate.base import elements
from headgate.base.errors import StateBroken
from headgate.base.moved import MOVED, loads
from headgate.core.state import keys, snapshot
from headgate.functions import evictors, time, window

_MOST_NAMES: Final = 1000
"""How many names of unknown classes are noted."""
MOST_NESTED: Final = 20_000
"""A fifth of what a stack of 8 MiB holds; pickle itself writes no more than about a thousand."""
_NESTING: Final = b"\x85\x86\x87("
"""Each tuple that holds something needs one of these: its opcode, or the mark before its parts."""
_MARK: Final = -1
_ADDS: Final = frozenset("aesu\x90b")
"""Opcodes that add to what they leave on the stack: items of lists, dicts and sets, and fields."""
_PUTS: Final = frozenset("pqr")
_GETS: Final = frozenset("ghj")
_STOP: Final = ord(".")
_MEMOIZE: Final = 0x94


def _names(module: Any, *names: str) -> dict[tuple[str, str], Any]:
    return {(module.__name__, name): getattr(module, name) for name in names}


class SavedRange:
    """A range that cannot be iterated: a few bytes could ask for a set of any size."""

    def __init__(self, *args: int) -> None:
        self.range = range(*args)

    def __eq__(self, other: object) -> bool:
        return self.range == (other.range if isinstance(other, SavedRange) else other)

    def __hash__(self) -> int:
        return hash(self.range)

    def __reduce__(self) -> tuple[type, tuple[int, int, int]]:
        return range, (self.range.start, self.range.stop, self.range.step)

    def __repr__(self) -> str:
        return repr(self.range)


_PLAIN: Final[dict[tuple[str, str], Any]] = {
    ("builtins", "range"): SavedRange,
    **_names(builtins, "complex", "frozenset", "set", "slice"),
    **_names(collections, "Counter", "OrderedDict", "defaultdict", "deque"),
    **_names(datetime, "date", "datetime", "time", "timedelta", "timezone"),
    **_names(decimal, "Decimal"),
    **_names(fractions, "Fraction"),
    **_names(uuid, "UUID"),
    **_names(row, "Row", "RowKind", "make_row"),
    **_names(elements, "StreamStatus", "Watermark"),
    **_names(evictors, "TimestampedValue"),
    **_names(keys, "Frozen"),
    **_names(snapshot, "Folded"),
    **_names(time, "Duration", "Instant", "Time"),
    **_names(window, "CountWindow", "GlobalWindow", "TimeWindow"),
    **_names(zoneinfo, "ZoneInfo"),
}
"""What may be made: it holds data, and does nothing else when it is made."""
_MAKE_ROW: Final = (row.__name__, row.make_row.__name__)
_IMMUTABLE: Final = 1 << 8
"""The flag of classes that nobody can change: Py_TPFLAGS_IMMUTABLETYPE."""
_FRACTION: Final = re.compile(r"-?\d+(/\d+)?", re.ASCII)


_EXTENSIONS: Final = copyreg._inverted_registry  # type: ignore[attr-defined]
"""What pickles of this process may name by a number, past ``find_class``; mostly nothing."""
_BY_NUMBER: Final = b"\x82\x83\x84"
_F = TypeVar("_F", bound=Callable[..., Any])


def _refuse(state: object) -> None:
    raise TypeError("a pickle cannot change a class or function")


def _unchangeable(function: _F) -> _F:
    """A pickle may set attributes of whatever it names, unless that says itself how it is set."""
    function.__setstate__ = _refuse  # type: ignore[attr-defined]
    return function


class _Maker(type):
    """A class that makes objects of a plain one, which a pickle thus cannot get hold of.

    A pickle may set attributes of whatever it names: of a class, for the whole process.
    """

    plain: Callable[..., Any]

    def __setstate__(cls, state: object) -> None:
        _refuse(state)

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        return cls.plain(*args, **kwargs)

    def __repr__(cls) -> str:
        return repr(cls.plain)


def _guarded(plain: Any) -> Any:
    """What a pickle gets instead of a plain class or function."""
    if isinstance(plain, FunctionType):
        copy = FunctionType(plain.__code__, plain.__globals__, plain.__name__, plain.__defaults__)
        copy.__kwdefaults__ = plain.__kwdefaults__
        return _unchangeable(copy)
    if plain.__flags__ & _IMMUTABLE:
        return plain
    if plain is fractions.Fraction:
        return _Maker(
            "Fraction", (), {"plain": _fraction, "__new__": lambda _, *args: _fraction(*args)}
        )

    def new(_: type, *args: object, **kwargs: object) -> Any:
        return plain.__new__(plain, *args, **kwargs)

    return _Maker(plain.__name__, (), {"plain": plain, "__new__": new})


def _fraction(numerator: object, denominator: object = 1) -> fractions.Fraction:
    """Not of a text with an exponent, whose digits would fill the memory."""
    if type(numerator) is str and denominator == 1 and _FRACTION.fullmatch(numerator):
        return fractions.Fraction(numerator)
    if type(numerator) is not int or type(denominator) is not int:
        raise pickle.UnpicklingError(f"{numerator!r:.100} is no fraction as Python writes it")
    return fractions.Fraction(numerator, denominator)


class _Shown(type):
    """A class that is kept itself, or a function, shows its name, too."""

    def __repr__(cls) -> str:
        return cls.__qualname__


class StandIn(metaclass=_Shown):
    """An object of a class that was not loaded: the name of the class, and what it is made of."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.args = args
        self.fields: dict[str, object] = dict(kwargs)
        self.items: list[object] = []

    def __new__(cls, *args: object, **kwargs: object) -> "StandIn":
        made = object.__new__(cls)
        StandIn.__init__(made, *args, **kwargs)  # pickle may go without it
        return made

    def __setstate__(self, state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.fields.update({str(name): value for name, value in part.items()})
            elif part is not None:
                self.args = (*self.args, part)

    def __call__(self, *args: object, **kwargs: object) -> "StandIn":
        return StandIn(self, *args, **kwargs)

    def append(self, item: object) -> None:
        self.items.append(item)

    def extend(self, items: Iterable[object]) -> None:
        self.items += items

    add = append

    def __setitem__(self, key: object, value: object) -> None:
        self.items.append((key, value))

    @recursive_repr()
    def __repr__(self) -> str:
        parts = [*map(repr, self.args), *(f"{name}={self.fields[name]!r}" for name in self.fields)]
        parts += [repr(self.items)] if self.items else []
        return f"{type(self).__qualname__}({', '.join(parts)})"


class SavedRow(msgspec.Struct, frozen=True, eq=False):
    """The parts of a Row as they were pickled: made in C, at half the price of the Row."""

    names: Any
    values: Any
    kind: Any

    @property
    def row(self) -> row.Row:
        return row.make_row(self.names, self.values, self.kind)

    def __eq__(self, other: object) -> bool:
        return self.row == (other.row if isinstance(other, SavedRow) else other)

    def __hash__(self) -> int:
        return hash(self.row)

    def __repr__(self) -> str:
        try:
            return repr(self.row)
        except TypeError:  # of parts that make no row
            return f"make_row({self.names!r}, {self.values!r}, {self.kind!r})"


class SafeLoader:
    """Loads plain data; for one thread. ``unknown``: the classes that have got a stand-in.

    ``saves_rows``: a ``SavedRow`` stands for each Row, for those who only look at the parts.
    """

    def __init__(self, saves_rows: bool = False) -> None:
        self.unknown: dict[str, None] = {}
        self._stand_ins: dict[str, type[StandIn]] = {}
        self._plain = {name: _guarded(plain) for name, plain in _PLAIN.items()}
        if saves_rows:  # the bound method and not the class, whose attributes could be set
            self._plain[_MAKE_ROW] = SavedRow.__call__

    def __call__(self, data: bytes | memoryview) -> Any:
        """Raises what pickle raises for bytes that are no pickle, and StateBroken."""
        data = bytes(data)
        check_nesting(data)
        if _EXTENSIONS:
            _check_numbers(data)
        try:
            return _Unpickler(io.BytesIO(data), self, self._plain).load()
        except TypeError:  # perhaps a datetime whose time zone is a stand-in
            lenient = {name: self._lenient(*name) for name in _PLAIN if name[0] == "datetime"}
            return _Unpickler(io.BytesIO(data), self, self._plain | lenient).load()

    def stand_in(self, name: str) -> type[StandIn]:
        """The class that stands for the class or function of this name."""
        found = self._stand_ins.get(name)
        if found is None:
            found = _Shown(name, (StandIn,), {})  # type: ignore[assignment]
            assert found is not None
            if len(self._stand_ins) < _MOST_NAMES:
                self._stand_ins[name] = found
                self.unknown[name] = None
        return found

    def _lenient(self, module: str, name: str) -> Callable[..., Any]:
        plain = _PLAIN[module, name]

        @_unchangeable
        def make(*args: object) -> Any:
            try:
                return plain(*args)
            except TypeError:
                return self.stand_in(f"{module}.{name}")(*args)

        return make


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: io.BytesIO, loader: SafeLoader, plain: dict[tuple[str, str], Any]
    ) -> None:
        super().__init__(file)
        self._loader = loader
        self._plain = plain

    def find_class(self, module: str, name: str) -> Any:
        now = MOVED.get(f"{module}:{name}")
        if now is not None:
            module, _, name = now.partition(":")
        if (module, name) == ("builtins", "getattr"):
            return self._attribute
        found = self._plain.get((module, name))
        return self._loader.stand_in(f"{module}.{name}") if found is None else found

    @_unchangeable  # it is one function for all unpicklers
    def _attribute(self, thing: object, name: object) -> Any:
        """Nothing has an attribute here but a time zone, which is pickled by way of one."""
        if thing is zoneinfo.ZoneInfo and name == "_unpickle":
            return zoneinfo.ZoneInfo._unpickle  # type: ignore[attr-defined]
        return self._loader.stand_in("builtins.getattr")(thing, name)


def _check_numbers(data: bytes) -> None:
    """Whoever names a thing by its number gets what the process has registered or cached for it."""
    if any(code in data for code in _BY_NUMBER) and any(
        opcode.name.startswith("EXT") for opcode, _, _ in pickletools.genops(data)
    ):
        raise pickle.UnpicklingError(
            "the pickle names a class by a number of the registry of copyreg"
        )


def load_classes(data: bytes | memoryview) -> Any:
    """With the classes that it names, as a restore does; raises StateBroken if one is missing."""
    try:
        return loads(data)
    except ModuleNotFoundError as error:
        raise StateBroken(
            f"the state has values of the module {error.name!r}, which is not here; put it on "
            f"PYTHONPATH, or read the state without loading classes"
        ) from error
    except AttributeError as error:
        raise StateBroken(
            f"the state has values of a class that is not where it was ({error}); bring it back, "
            f"or read the state without loading classes"
        ) from error


def shown(value: object) -> str:
    """A value as text: a text as it is, anything else as Python shows it."""
    if type(value) is str:
        return value
    try:
        return repr(value)
    except Exception as error:  # of a class of the user's, or nested too deep
        return f"<{type(value).__qualname__} that cannot be shown: {type(error).__name__}>"


def check_nesting(data: bytes) -> None:
    """Raises StateBroken; bytes that are no pickle are left to the unpickler."""
    if len(data) <= MOST_NESTED or len(data) - len(data.translate(None, _NESTING)) <= MOST_NESTED:
        return
    try:
        depth = nesting(data)
    except (IndexError, KeyError, ValueError):
        return
    if depth > MOST_NESTED:
        raise StateBroken(
            f"the state holds a value whose parts stand {depth:,} deep in each other, and "
            f"{MOST_NESTED:,} are the most that can be read; no job has written that"
        )


def nesting(data: bytes) -> int:
    """The depth of the deepest object; raises what a wrong pickle leads to."""
    stack: list[int] = []
    memo: dict[int, int] = {}
    at = deepest = 0
    while (code := data[at]) != _STOP:
        at += 1
        opcode = _OPCODES[code]
        end = at + opcode.size if opcode.size >= 0 else opcode.end(data, at)
        if opcode.is_plain:
            stack.append(0)
        elif code == _MEMOIZE:
            memo[len(memo)] = stack[-1]
        elif opcode.gets:
            stack.append(memo.get(_index(opcode.name, data, at, end), 0))
        elif opcode.puts:
            memo[_index(opcode.name, data, at, end)] = stack[-1]
        else:
            opcode.step(stack)
            if stack and stack[-1] > deepest:
                deepest = stack[-1]
        at = end
    return deepest


def _index(name: str, data: bytes, start: int, end: int) -> int:
    text = data[start:end]
    return int(text) if name in "pg" else int.from_bytes(text, "little")


class _Opcode:
    """What one opcode takes from the bytes and does to the stack."""

    __slots__ = (
        "_adds",
        "_leaves",
        "_takes",
        "_takes_slice",
        "end",
        "gets",
        "is_plain",
        "name",
        "puts",
        "size",
    )

    def __init__(self, info: pickletools.OpcodeInfo) -> None:
        self.name = info.code
        self.gets, self.puts = info.code in _GETS, info.code in _PUTS
        self.size = 0 if info.arg is None else info.arg.n
        self.end = _end_of(info)
        before = [item.name for item in info.stack_before]
        self._takes_slice = "stackslice" in before
        self._takes = len([name for name in before if name not in ("mark", "stackslice")])
        self._leaves = [item.name == "mark" for item in info.stack_after]
        self._adds = info.code in _ADDS
        self.is_plain = not before and self._leaves == [False] and not self.gets
        """It leaves a number, a text, an empty collection."""

    def step(self, stack: list[int]) -> None:
        taken: list[int] = []
        if self._takes_slice:
            mark = len(stack) - 1
            while stack[mark] != _MARK:
                mark -= 1
            taken = stack[mark + 1 :]
            del stack[mark:]
        if self._adds:
            while len(taken) < self._takes - 1 and not self._takes_slice:
                taken.append(stack.pop())
            if taken and (depth := max(taken) + 1) > stack[-1]:
                stack[-1] = depth
            return
        for _ in range(self._takes):
            taken.append(stack.pop())
        depth = max(taken) + 1 if taken else 0
        stack += [_MARK if is_mark else depth for is_mark in self._leaves]


def _end_of(info: pickletools.OpcodeInfo) -> Callable[[bytes, int], int]:
    """Where the opcode's argument ends, given where it begins."""
    argument = info.arg
    if argument is None or argument.n >= 0:
        return lambda data, start: start + (0 if argument is None else argument.n)
    if argument.n == pickletools.UP_TO_NEWLINE:
        if argument.name == "stringnl_noescape_pair":
            return lambda data, start: _after_line(data, _after_line(data, start))
        return _after_line
    width = _WIDTHS[argument.n]
    return lambda data, start: start + width + int.from_bytes(data[start : start + width], "little")


def _after_line(data: bytes, start: int) -> int:
    return data.index(b"\n", start) + 1


_WIDTHS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_OPCODES: Final = {ord(info.code): _Opcode(info) for info in pickletools.opcodes}
