"""Structs as they are in JSON: objects whose keys have dashes, as in Flink's REST API.

Structs that travel between driver and workers are arrays there, or have tags; for people they are
objects with named fields. ``json_type`` makes the struct that says so, of any struct and of those
inside it. Law: ``decode(encode(answer), type(answer)) == answer``.
"""

import types
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec

from headgate.observe.flame import FlameNode
from headgate.observe.series import SeriesPoint

AS_IS: Final = (FlameNode, SeriesPoint)
"""Structs that there are many of, whose own form is that of the API."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def encode(answer: msgspec.Struct) -> bytes:
    """As the API sends it."""
    wire = msgspec.convert(answer, json_type(type(answer)), from_attributes=True)
    return msgspec.json.encode(wire)


def encode_list(answers: "list[_Struct]") -> bytes:
    """Several answers of one kind."""
    return b"[" + b",".join(map(encode, answers)) + b"]"


def decode(text: bytes, kind: type[_Struct]) -> _Struct:
    """The answer back; raises what msgspec does."""
    wire = msgspec.json.decode(text, type=json_type(kind))
    return msgspec.convert(wire, kind, from_attributes=True)


@cache
def json_type(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The struct that is encoded in the place of this one."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        declared: tuple[Any, ...] = (field.name, _json_type(field.type))
        if field.default is not msgspec.NODEFAULT:
            declared += (field.default,)
        elif field.default_factory is not msgspec.NODEFAULT:
            declared += (msgspec.field(default_factory=field.default_factory),)
        fields.append(declared)
    made = msgspec.defstruct(kind.__name__, fields, rename="kebab", frozen=True, kw_only=True)
    made.__doc__ = kind.__doc__
    return made


def _json_type(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind if kind in AS_IS else json_type(kind)
    origin, inner = get_origin(kind), tuple(map(_json_type, get_args(kind)))
    if origin is Union or origin is types.UnionType:
        return Union[inner]  # noqa: UP007 - of a tuple
    return kind if origin is None else origin[inner]
