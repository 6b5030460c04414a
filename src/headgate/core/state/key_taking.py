"""Taking the keys of many records at once; of most key selectors without a call for each record.

What a selector does is read from its instructions. If it only takes parts of its record, and
perhaps puts them into a tuple, then one expression does the same for all records, or for their
fields where they come taken apart. Law: the keys are ``[key_of(record) for record in records]``,
and an error is the selector's own, raised by it.
"""

import dis
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from operator import attrgetter, itemgetter
from types import FunctionType, MethodType
from typing import Final, TypeAlias, cast

from headgate.base.elements import Key, Record
from headgate.base.fields import FieldShape, RecordFields, Same

TakeKeys: TypeAlias = Callable[[list[Record]], list[Key]]


def key_taker(key_of: Callable[[Record], Key]) -> TakeKeys:
    """What takes the keys of a list of records."""
    form = key_form(key_of)

    def take_each(records: list[Record]) -> list[Key]:
        return [key_of(record) for record in records]  # map would end at a StopIteration

    if form is None:
        return take_each
    take_at_once = form.take

    def take_parts(records: list[Record]) -> list[Key]:
        keys: list[Key] = []
        with suppress(Exception):  # the selector itself fails below, where the user can see it
            keys = take_at_once(records)
        return keys if len(keys) == len(records) else take_each(records)

    return take_parts


@dataclass(frozen=True, slots=True)
class RecordPart:
    """``record[name]``, or ``record.name``."""

    name: Record
    is_attribute: bool
    of: "Expression | None" = None
    """What it is a part of; None: of the record."""


class _Whole:
    """The record itself."""


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Record


Expression: TypeAlias = RecordPart | _Whole | _Constant | tuple["Expression", ...]
"""What a function computes from its record: a part, a part of a part, a tuple of these."""

_WHOLE: Final = _Whole()


class KeyForm:
    """What a key selector takes from a record, written as one expression for many records."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        self._read = tuple(dict.fromkeys(_read(expression)))

    @property
    def part(self) -> RecordPart | None:
        """The part of the record that is the key; None: the key is made of several, or deeper."""
        key = self._expression
        return key if isinstance(key, RecordPart) and key.of is None else None

    @cached_property
    def take(self) -> TakeKeys:
        """Takes the keys; fewer than there are records, or any error: the selector has to."""
        parts = self._expression if isinstance(self._expression, tuple) else (self._expression,)
        if all(isinstance(part, RecordPart) and part.of is None for part in parts):
            found = cast("tuple[RecordPart, ...]", parts)
            kinds = {part.is_attribute for part in found}
            if len(kinds) == 1 and (len(found) > 1 or parts is not self._expression):
                getter = attrgetter if kinds == {True} else itemgetter
                get = getter(*(part.name for part in found))
                return lambda records: list(map(get, records))
        return self._compiled("record", "records", of_record=True)

    def places(self, shape: FieldShape, count: int) -> list[int] | None:
        """The fields that it reads; None: it needs records."""
        found: list[int] = []
        for part in self._read:
            place = None
            if isinstance(part, RecordPart):
                place = shape.place(part.name, part.is_attribute, count)
            if place is None:
                return None
            found.append(place)
        return found or None

    def of_fields(self, fields: RecordFields) -> list[Key] | Same | None:
        """The keys of records that are taken apart; None: the selector has to look at them."""
        at = self.places(fields.shape, len(fields.places))
        if at is None:
            return None
        read = [fields.places[place] for place in at]
        if self.part is not None:
            return read[0]
        columns = [
            place if type(place) is list else repeat(place[0], fields.count) for place in read
        ]
        with suppress(Exception):  # the selector itself fails, where the user can see it
            return self._take_fields(columns)
        return None

    @cached_property
    def _take_fields(self) -> Callable[[list[Record]], list[Key]]:
        names = ", ".join(_field_name(number) for number in range(len(self._read)))
        return self._compiled(f"{names},", "zip(*records)", of_record=False)

    def _compiled(self, variables: str, source: str, *, of_record: bool) -> TakeKeys:
        given: dict[str, Record] = {}

        def read(part: RecordPart | _Whole) -> str:
            if not of_record:
                return _field_name(self._read.index(part))
            return f"record{_suffix(part, given)}" if isinstance(part, RecordPart) else "record"

        text = _text(self._expression, read, given)
        exec(f"def take(records):\n    return [{text} for {variables} in {source}]", given)
        return cast("TakeKeys", given["take"])


def _field_name(number: int) -> str:
    return f"field{number}"


def _read(expression: Expression) -> Iterator[RecordPart | _Whole]:
    """What an expression reads of the record."""
    if isinstance(expression, tuple):
        for part in expression:
            yield from _read(part)
    elif isinstance(expression, RecordPart) and expression.of is not None:
        yield from _read(expression.of)
    elif not isinstance(expression, _Constant):
        yield expression


def _text(
    expression: Expression,
    read: Callable[[RecordPart | _Whole], str],
    constants: dict[str, Record],
) -> str:
    """An expression as Python; ``read`` writes what it reads of the record."""
    if isinstance(expression, tuple):
        items = [_text(part, read, constants) for part in expression]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(expression, _Constant):
        return _constant(expression.value, constants)
    if isinstance(expression, RecordPart) and expression.of is not None:
        return _text(expression.of, read, constants) + _suffix(expression, constants)
    return read(expression)


def _suffix(part: RecordPart, constants: dict[str, Record]) -> str:
    return f".{part.name}" if part.is_attribute else f"[{_constant(part.name, constants)}]"


def _constant(value: Record, constants: dict[str, Record]) -> str:
    name = f"constant{len(constants)}"
    constants[name] = value
    return name


def key_form(function: object, parameters: int = 1) -> KeyForm | None:
    """What a function takes from its first argument, if it does nothing else; None: call it.

    ``parameters``: so many it takes; the others it does not use.
    """
    expression = _expression_of(function, parameters)
    return None if expression is None else KeyForm(expression)


def part_of(function: object, parameters: int = 1) -> RecordPart | None:
    """The part of its first argument that a function returns, if it does nothing else.

    ``lambda pair: pair[0]``, for instance, or one that returns ``row["user"]`` or ``event.user``,
    perhaps by way of a variable. ``parameters``: as for ``key_form``.
    """
    form = key_form(function, parameters)
    return None if form is None else form.part


def _expression_of(function: object, parameters: int) -> Expression | None:
    """What a function computes, by its instructions in CPython 3.10 to 3.13."""
    bound = 0
    if isinstance(function, MethodType):
        function, bound = function.__func__, 1
    if not isinstance(function, FunctionType):
        return None
    code, count = function.__code__, parameters + bound
    if code.co_argcount != count or code.co_kwonlyargcount or code.co_flags & _HAS_MORE:
        return None
    if code.co_cellvars or code.co_freevars or not count:
        return None
    variables: dict[str, Expression] = {code.co_varnames[bound]: _WHOLE}
    stack: list[Expression] = []
    try:
        for step in dis.get_instructions(code):
            if step.opname == "RETURN_VALUE":
                return stack.pop()
            _take_step(step, variables, stack)
    except (KeyError, IndexError, _UnknownStep):
        pass
    return None


class _UnknownStep(Exception):
    """The function does more than to take parts."""


def _take_step(
    step: dis.Instruction, variables: dict[str, Expression], stack: list[Expression]
) -> None:
    """Do one instruction, on expressions in the place of values."""
    match step.opname:
        case "RESUME" | "NOP":
            pass
        case "LOAD_FAST":
            stack.append(variables[step.argval])
        case "LOAD_FAST_LOAD_FAST":  # since Python 3.13, like the next but one
            stack += [variables[name] for name in step.argval]
        case "STORE_FAST":
            variables[step.argval] = stack.pop()
        case "STORE_FAST_LOAD_FAST":
            stored, loaded = step.argval
            variables[stored] = stack.pop()
            stack.append(variables[loaded])
        case "LOAD_CONST":
            stack.append(_Constant(step.argval))
        case "LOAD_ATTR":
            stack.append(_part(stack.pop(), step.argval, is_attribute=True))
        case "BINARY_SUBSCR":
            name = stack.pop()
            if not isinstance(name, _Constant):
                raise _UnknownStep
            stack.append(_part(stack.pop(), name.value, is_attribute=False))
        case "BUILD_TUPLE":
            count = step.arg or 0
            items = tuple(stack[len(stack) - count :])
            del stack[len(stack) - count :]
            stack.append(items)
        case _:
            raise _UnknownStep


def _part(of: Expression, name: Record, *, is_attribute: bool) -> RecordPart:
    if isinstance(of, _Constant):
        raise _UnknownStep  # the record is not in it
    return RecordPart(name, is_attribute, None if of is _WHOLE else of)


_HAS_MORE: Final = 0x04 | 0x08
"""``*args`` or ``**kwargs``."""
