"""Taking the keys of many records at once; of most key selectors without a call for each record.

Law: the keys are ``[key_of(record) for record in records]``, and an error is the selector's own,
raised by it.
"""

import dis
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from types import FunctionType, MethodType
from typing import Final, TypeAlias

from headgate.base.elements import Key, Record

TakeKeys: TypeAlias = Callable[[list[Record]], list[Key]]


def key_taker(key_of: Callable[[Record], Key]) -> TakeKeys:
    """What takes the keys of a list of records."""
    get_part = part_getter(key_of)

    def take_each(records: list[Record]) -> list[Key]:
        return [key_of(record) for record in records]  # map would end at a StopIteration

    if get_part is None:
        return take_each

    def take_parts(records: list[Record]) -> list[Key]:
        keys: list[Key] = []
        with suppress(Exception):  # the selector itself fails below, where the user can see it
            keys = list(map(get_part, records))
        return keys if len(keys) == len(records) else take_each(records)

    return take_parts


def part_getter(function: object) -> Callable[[Record], Record] | None:
    """The same in C, of a function that returns one part of its argument and does nothing else."""
    part = part_of(function)
    return None if part is None else part.getter()


@dataclass(frozen=True, slots=True)
class RecordPart:
    """``record[name]``, or ``record.name``."""

    name: Record
    is_attribute: bool

    def getter(self) -> Callable[[Record], Record]:
        return attrgetter(self.name) if self.is_attribute else itemgetter(self.name)


def part_of(function: object, parameters: int = 1) -> RecordPart | None:
    """The part of its first argument that a function returns, if it does nothing else.

    ``lambda pair: pair[0]``, for instance, or one that returns ``row["user"]`` or ``event.user``,
    perhaps by way of a variable. ``parameters``: so many it takes; the others it does not use.
    """
    bound = 0
    if isinstance(function, MethodType):
        function, bound = function.__func__, 1
    if not isinstance(function, FunctionType):
        return None
    code, count = function.__code__, parameters + bound
    if code.co_argcount != count or code.co_kwonlyargcount or code.co_flags & _HAS_MORE:
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "NOP")]
    names = [step.opname for step in steps]
    taken = 3 if names[1:2] == ["LOAD_CONST"] else 2
    if steps[0].argval != code.co_varnames[bound] or not _returns(steps[taken:]):
        return None
    match names[:taken]:
        case ["LOAD_FAST", "LOAD_CONST", "BINARY_SUBSCR"]:
            return RecordPart(steps[1].argval, False)
        case ["LOAD_FAST", "LOAD_ATTR"]:
            return RecordPart(steps[1].argval, True)
        case _:
            return None


def _returns(steps: list[dis.Instruction]) -> bool:
    """Whether all that is done with a value is to return it, perhaps by way of a variable."""
    match [step.opname for step in steps]:
        case ["RETURN_VALUE"]:
            return True
        case ["STORE_FAST", "LOAD_FAST", "RETURN_VALUE"]:
            return bool(steps[0].argval == steps[1].argval)
        case ["STORE_FAST_LOAD_FAST", "RETURN_VALUE"]:  # since Python 3.13
            stored, loaded = steps[0].argval
            return bool(stored == loaded)
        case _:
            return False


_HAS_MORE: Final = 0x04 | 0x08
"""``*args`` or ``**kwargs``."""
