"""Structs as they are in JSON: objects whose keys have dashes, as in Flink's REST API.

Structs that travel between driver and workers are arrays there, or have tags; for people they are
objects with named fields. ``json_type`` makes the struct that says so, of any struct and of those
inside it. Law: ``decode(encode(answer), type(answer)) == answer``.
"""

import types
from collections.abc import Sequence
from functools import cache, partial
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from headgate.observe.flame import FlameNode
from headgate.observe.web.answers import SeriesPoint

AS_IS: Final = (FlameNode, SeriesPoint)
"""Structs that there are many of, whose own form is that of the API."""

IDENTITY: Final = ("jid", "id", "name", "state", "subtask")
"""Fields without which no answer says anything."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def encode(answer: msgspec.Struct) -> bytes:
    """The answer as JSON, as the API sends it."""
    wire = msgspec.convert(answer, json_type(type(answer)), from_attributes=True)
    return msgspec.json.encode(wire)


def encode_list(answers: "list[_Struct]") -> bytes:
    """Several answers of one kind."""
    return b"[" + b",".join(map(encode, answers)) + b"]"


def decode(text: bytes, kind: type[_Struct], *, lenient: bool = False) -> _Struct:
    """The answer back; raises what msgspec does.

    ``lenient``: it may come from another version, and all that it lacks but its identity is empty.
    """
    wire = msgspec.json.decode(text, type=json_type(kind, lenient))
    return msgspec.convert(wire, kind, from_attributes=True)


def json_type(kind: type[msgspec.Struct], lenient: bool = False) -> type[msgspec.Struct]:
    """The struct that is encoded in the place of this one."""
    return _make_type(kind, lenient)


@cache
def _make_type(kind: type[msgspec.Struct], lenient: bool) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        declared: tuple[Any, ...] = (field.name, inner := _json_type(field.type, lenient))
        if field.default is not msgspec.NODEFAULT:
            declared += (field.default,)
        elif field.default_factory is not msgspec.NODEFAULT:
            declared += (msgspec.field(default_factory=field.default_factory),)
        elif lenient and field.name not in IDENTITY:
            declared += (msgspec.field(default_factory=partial(_empty, inner)),)
        fields.append(declared)
    made = msgspec.defstruct(kind.__name__, fields, rename="kebab", frozen=True, kw_only=True)
    made.__doc__ = kind.__doc__
    return made


def _json_type(kind: Any, lenient: bool) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind if kind in AS_IS else json_type(kind, lenient)
    origin, inner = get_origin(kind), tuple(_json_type(each, lenient) for each in get_args(kind))
    if origin is Union or origin is types.UnionType:
        return Union[inner]  # noqa: UP007 - of a tuple
    return kind if origin is None else origin[inner]


def _empty(kind: Any) -> Any:
    """A value that says least."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _empty(inner[0])
    if kind is Any or type(None) in inner:
        return None
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        required = [field for field in msgspec.structs.fields(kind) if field.required]
        return kind(**{field.name: _empty(field.type) for field in required})
    return () if origin is Sequence else (origin or kind)()
