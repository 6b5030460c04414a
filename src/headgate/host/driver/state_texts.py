"""Keys of state from what people type, and values of state as people read them: in JSON's words.

A key whose type the program has declared is read by that type; another one is a JSON literal, with
arrays for tuples, or else a text. Law: what JSON cannot say exactly is shown as ``repr`` says it,
cut; nothing that a value of the user's classes does here goes beyond its own line.
"""

import datetime
import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import msgspec

from headgate.api.row import Row, named_row
from headgate.api.types.types import (
    BasicTypeInfo,
    ElementsTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headgate.base.elements import UNREADABLE, Key, Record, error_text
from headgate.base.errors import StateUnreadable
from headgate.base.inspections import ShownState, ShownValue, StateValue
from headgate.base.moved import loads
from headgate.host.driver.state_reads import TIMEOUT_S, ReadableJob, StateRead, find_operator

LONGEST_REPR: Final = 10_000
DEEPEST: Final = 64
LARGEST_INT: Final = 2**63

KEY_TYPES: Final = ("string", "int", "float", "bool", "bytes", "tuple", "json")
"""What people may say about keys of which the program says nothing."""
_ISO: Final[dict[str, Callable[[str], object]]] = {
    "SQL_DATE": datetime.date.fromisoformat,
    "SQL_TIME": datetime.time.fromisoformat,
    "SQL_TIMESTAMP": datetime.datetime.fromisoformat,
    "BIG_DEC": Decimal,
}


def shown_state(
    job: ReadableJob,
    called: str,
    state: str,
    texts: Sequence[str],
    key_type: str = "",
    timeout_s: float = TIMEOUT_S,
) -> ShownState:
    """Read some keys, given as texts, and show what is there; waits. Raises StateUnreadable."""
    declared = find_operator(job.graph, called).operator.key_type
    keys = [parse_key(text, declared, key_type) for text in texts]
    read = StateRead(job, called, state, keys, timeout_s)
    values = read.values()
    shown = [shown_value(key, value) for key, value in zip(keys, values, strict=True)]
    operator = read.place.operator
    return ShownState(operator.uid, operator.name, state, read.kind, shown)


def parse_key(text: str, declared: object, key_type: str = "") -> Key:
    """A key; ``key_type`` is one of KEY_TYPES and goes before what is declared."""
    try:
        if key_type:
            return _as_said(text, key_type)
        takes_anything = getattr(declared, "takes_anything", False)
        if isinstance(declared, TypeInformation) and not takes_anything:
            return _as_declared(text, declared)
    except UNREADABLE as error:
        wanted = f"of the type {declared!r}" if not key_type else f"a {key_type}"
        raise StateUnreadable(
            f"the key {_cut(text, 80)!r} is not {wanted}: {error_text(error)}"
        ) from error
    try:
        return _tuples(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _as_said(text: str, key_type: str) -> Key:
    match key_type:
        case "string":
            return text
        case "bytes":
            return text.encode()
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "bool":
            return {"true": True, "false": False}[text.lower()]
        case "json":
            return json.loads(text)
        case "tuple":
            found = json.loads(text)
            if not isinstance(found, list):
                raise TypeError("give a JSON array")
            return _tuples(found)
        case _:
            raise TypeError(f"give one of {', '.join(KEY_TYPES)}")


def _as_declared(text: str, declared: TypeInformation) -> Key:
    if isinstance(declared, BasicTypeInfo) and declared.name in ("STRING", "CHAR", *_ISO):
        return declared.coerced(_typed(text, declared))
    if isinstance(declared, ElementsTypeInfo) and declared.is_bytes:
        return text.encode()
    key = _typed(json.loads(text), declared)
    return _as_selected(key, declared.coerced(key), declared)


def _as_selected(given: Record, coerced: Record, declared: TypeInformation) -> Key:
    """As the key selector returns it: ``key_by`` rounds no number to a FLOAT and names no field.

    A row that is given as an array has no names, if its type has none of its own.
    """
    if type(given) is type(coerced):
        return given
    if not isinstance(given, list) or not isinstance(declared, TupleTypeInfo | RowTypeInfo):
        return coerced
    parts = zip(given, coerced, declared.field_types, strict=True)
    fields = [_as_selected(*part) for part in parts]
    if isinstance(declared, TupleTypeInfo):
        return tuple(fields)
    return named_row(declared.field_names, fields) if declared.has_own_names else Row(*fields)


def _typed(value: Record, declared: TypeInformation) -> Record:
    """What JSON has no word for, wherever it stands, from its text."""
    if value is None:
        return None
    if isinstance(declared, BasicTypeInfo) and isinstance(value, str):
        return _ISO.get(declared.name, str)(value)
    if isinstance(declared, TupleTypeInfo | RowTypeInfo) and isinstance(value, list):
        return [_typed(*pair) for pair in zip(value, declared.field_types, strict=True)]
    if isinstance(declared, RowTypeInfo) and isinstance(value, dict):
        types = dict(zip(declared.field_names, declared.field_types, strict=True))
        if unknown := sorted({*value} - {*types}):
            raise TypeError(f"it has no field {unknown[0]!r}")
        return {name: _typed(field, types[name]) for name, field in value.items()}
    return value


def _tuples(value: Record) -> Key:
    """JSON's arrays as tuples: keys are rarely lists."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return value


def shown_value(key: Key, value: StateValue) -> ShownValue:
    """One value, in JSON's words if it has any."""
    shown_key = in_json(key)
    if shown_key is None and key is not None:
        shown_key = shown_repr(key)
    if value.data is None:
        return ShownValue(shown_key, False, problem=value.problem)
    try:
        held = loads(value.data)
    except UNREADABLE as error:
        problem = f"its value cannot be unpickled in the driver: {error_text(error)}"
        return ShownValue(shown_key, True, problem=problem)
    words = in_json(held)
    if words is None and held is not None:
        return ShownValue(shown_key, True, text=shown_repr(held))
    return ShownValue(shown_key, True, words)


def in_json(value: Record) -> Any:
    """The value in what JSON can say; None: it cannot say it, or the value is None."""
    try:
        words = _words(value, DEEPEST)
        msgspec.json.encode(words)  # lone surrogates, for one
    except UNREADABLE:
        return None
    return words


def _words(value: Record, depth: int) -> Any:
    if depth == 0:
        raise TypeError("it is too deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int) and -LARGEST_INT <= value < LARGEST_INT:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, Row) and value.get_field_names():
        value = value.as_dict()
    if isinstance(value, list | tuple | Row):
        return [_words(item, depth - 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {str(name): _words(item, depth - 1) for name, item in value.items()}
    raise TypeError(f"JSON has no word for a {type(value).__name__}")


def shown_repr(value: Record) -> str:
    """As ``repr`` shows it, cut; whatever the user's class makes of that."""
    try:
        text = repr(value)
    except UNREADABLE as error:
        text = f"a {type(value).__name__}, whose repr() fails: {error_text(error)}"
    return _cut(text, LONGEST_REPR).encode("utf-8", "backslashreplace").decode()


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
