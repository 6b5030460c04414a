"""From a JSON schema to the type of rows: objects are rows, arrays lists, numbers decimals."""

import json
from collections.abc import Mapping
from typing import Final

from headgate.api.types.types import RowTypeInfo, TypeInformation, Types
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid


def row_type_of(json_schema: str) -> RowTypeInfo:
    """The type of the objects that a schema describes."""
    try:
        schema = json.loads(json_schema)
    except (TypeError, ValueError) as error:
        raise PlanInvalid(f"the JSON schema cannot be read ({error}); give it as a text") from None
    found = _type_of(schema, "the schema")
    if not isinstance(found, RowTypeInfo):
        raise PlanInvalid("the JSON schema describes no object; give one of type object")
    return found


def _type_of(schema: Record, place: str) -> TypeInformation:
    if not isinstance(schema, Mapping):
        raise PlanInvalid(f"the JSON schema has {schema!r} as {place}; give an object there")
    kinds = schema.get("type")
    kinds = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
    if len(kinds) == 1:
        kind = kinds[0]
        if kind == "object" and isinstance(schema.get("properties"), Mapping):
            parts = schema["properties"]
            types = [_type_of(part, f"property {name!r}") for name, part in parts.items()]
            return Types.ROW_NAMED(list(parts), types)
        if kind == "array" and "items" in schema:
            return Types.OBJECT_ARRAY(_type_of(schema["items"], f"items of {place}"))
        if kind == "string":
            return _text_type(schema)
        if kind in _SINGLE:
            return _SINGLE[kind]
    raise PlanInvalid(
        f"the JSON schema has the type {schema.get('type')!r} as {place}; give one of string, "
        f"number, integer, boolean, object with properties, array with items"
    )


def _text_type(schema: Mapping[str, object]) -> TypeInformation:
    if schema.get("contentEncoding") == "base64":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    return _FORMATS.get(str(schema.get("format")), Types.STRING())


_SINGLE: Final[dict[object, TypeInformation]] = {
    "boolean": Types.BOOLEAN(),
    "integer": Types.BIG_INT(),
    "number": Types.BIG_DEC(),
}
_FORMATS: Final[dict[str, TypeInformation]] = {
    "date": Types.SQL_DATE(),
    "time": Types.SQL_TIME(),
    "date-time": Types.SQL_TIMESTAMP(),
}
