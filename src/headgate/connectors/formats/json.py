"""Rows as JSON objects, one object to a message, under PyFlink's names.

msgspec decodes straight into a struct built from the row type: unknown names are skipped, strings
become dates and decimals, bytes are base64. The row type may come from a JSON schema: objects are
rows, arrays lists, numbers decimals.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from headgate.api.row import Row
from headgate.api.types.types import (
    BasicTypeInfo,
    ElementsTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from headgate.api.types.wires import or_none
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.formats.lines import (
    MAX_LINE_BYTES,
    NO_RECORD,
    LineBlock,
    check_text,
    each_line,
    malformed,
    with_newlines,
    without_mark,
)
from headgate.connectors.formats.schemas import (
    DeserializationSchema,
    SerializationSchema,
    check_row_type,
    unreadable,
)


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


class JsonRowDeserializationSchema(DeserializationSchema):
    """A JSON object becomes a Row. Made by ``JsonRowDeserializationSchema.builder()``."""

    def __init__(
        self,
        type_info: RowTypeInfo,
        fail_on_missing_field: bool = False,
        ignore_parse_errors: bool = False,
    ) -> None:
        self._settings = type_info, fail_on_missing_field, ignore_parse_errors
        self._type_info = check_row_type(type_info, "JsonRowDeserializationSchema")
        self._ignores = ignore_parse_errors
        form = _struct_of(self._type_info, fail_on_missing_field)
        self._decoder = msgspec.json.Decoder(form, strict=False)

    @staticmethod
    def builder() -> "JsonRowDeserializationSchema.Builder":
        return JsonRowDeserializationSchema.Builder()

    class Builder:
        """Gathers the settings of a schema."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
            self._fails = self._ignores = False

        def type_info(self, type_info: TypeInformation) -> "JsonRowDeserializationSchema.Builder":
            """The names of the rows are those of the JSON objects."""
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> "JsonRowDeserializationSchema.Builder":
            """The type as a JSON schema says it."""
            self._type_info = row_type_of(json_schema)
            return self

        def fail_on_missing_field(self) -> "JsonRowDeserializationSchema.Builder":
            """Otherwise a field that is not there is None."""
            self._fails = True
            return self

        def ignore_parse_errors(self) -> "JsonRowDeserializationSchema.Builder":
            """Leave out what cannot be read."""
            self._ignores = True
            return self

        def build(self) -> "JsonRowDeserializationSchema":
            kind = check_row_type(self._type_info, "JsonRowDeserializationSchema")
            return JsonRowDeserializationSchema(kind, self._fails, self._ignores)

    def deserialize(self, message: bytes) -> Row | None:
        try:
            return self._type_info.coerced(_plain(self._decoder.decode(message)))
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
            if self._ignores:
                return None
            raise unreadable("JsonRowDeserializationSchema", message, error) from None

    def get_produced_type(self) -> RowTypeInfo:
        return self._type_info

    def __reduce__(self) -> tuple[object, ...]:
        return JsonRowDeserializationSchema, self._settings


class JsonRowSerializationSchema(SerializationSchema):
    """A row becomes a JSON object. Made by ``JsonRowSerializationSchema.builder()``."""

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._type_info = check_row_type(type_info, "JsonRowSerializationSchema")

    @staticmethod
    def builder() -> "JsonRowSerializationSchema.Builder":
        return JsonRowSerializationSchema.Builder()

    class Builder:
        """Gathers the settings of a schema."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None

        def with_type_info(
            self, type_info: TypeInformation
        ) -> "JsonRowSerializationSchema.Builder":
            """The names of the rows are those of the JSON objects."""
            self._type_info = type_info
            return self

        def build(self) -> "JsonRowSerializationSchema":
            return JsonRowSerializationSchema(
                check_row_type(self._type_info, "JsonRowSerializationSchema")
            )

    def serialize(self, value: Record) -> bytes:
        return _ENCODER.encode(self._type_info.coerced(value))


@dataclass(frozen=True)
class JsonLinesFormat:
    """Files with a JSON value on each line; empty lines are left out."""

    type_info: RowTypeInfo | None = None
    """None: dicts, lists, texts and numbers, as they come."""
    max_line_bytes: int = MAX_LINE_BYTES

    has_header = False
    spans_lines = False

    def __post_init__(self) -> None:
        check_text("JSON files", "utf-8", "strict", self.max_line_bytes)

    def parser(self, header: bytes, where: str) -> "JsonLinesParser":
        return JsonLinesParser(self.type_info)


class JsonLinesParser:
    """Decodes line after line without a step of Python; another way only if one is malformed."""

    def __init__(self, type_info: RowTypeInfo | None) -> None:
        self._type_info = type_info
        if type_info is None:
            self._decoder = msgspec.json.Decoder()
        else:
            self._decoder = msgspec.json.Decoder(_struct_of(type_info, False), strict=False)
            self._coerce = type_info.coercer()
            self._is_flat = all(isinstance(part, BasicTypeInfo) for part in type_info.field_types)

    def parse(self, data: bytes, first: bool, last: bool) -> LineBlock:
        data = with_newlines(without_mark(data) if first else data)
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        try:
            return LineBlock(self._records(list(map(self._decoder.decode, lines))))
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            return each_line(data, self._line, malformed)

    def _records(self, values: list[Record]) -> list[Record]:
        if self._type_info is None:
            return values
        plain = msgspec.structs.astuple if self._is_flat else _plain
        return self._coerce(list(map(plain, values)))

    def _line(self, line: bytes) -> Record:
        if not line.strip():
            return NO_RECORD
        return self._records([self._decoder.decode(line)])[0]


def _struct_of(kind: RowTypeInfo, required: bool) -> type[msgspec.Struct]:
    fields: list[tuple[str, object] | tuple[str, object, object]] = []
    names: dict[str, str] = {}
    for at, (name, part) in enumerate(zip(kind.field_names, kind.field_types, strict=True)):
        form = or_none(_form_of(part, required))
        fields.append((f"f{at}", form) if required else (f"f{at}", form, None))
        names[f"f{at}"] = name
    return msgspec.defstruct("Json", fields, rename=names, kw_only=True)


def _form_of(kind: TypeInformation, required: bool) -> object:
    """The type as msgspec reads it from JSON."""
    match kind:
        case RowTypeInfo():
            return _struct_of(kind, required)
        case TupleTypeInfo():
            parts = [or_none(_form_of(part, required)) for part in kind.field_types]
            return tuple[tuple(parts)]  # type: ignore[misc]
        case ElementsTypeInfo() if not kind.is_bytes:
            return list[or_none(_form_of(kind.element_type, required))]  # type: ignore[misc]
        case MapTypeInfo():
            key, value = _form_of(kind.key_type, required), _form_of(kind.value_type, required)
            return dict[key, or_none(value)]  # type: ignore[misc,valid-type]
        case BasicTypeInfo() | ElementsTypeInfo():
            wire = kind.wire()
            assert wire is not None
            return wire.reads
        case _:
            raise PlanInvalid(
                f"JSON rows have a field of {kind!r}, which has no form in JSON; "
                f"declare what it holds"
            )


def _plain(value: Record) -> Record:
    """Structs as tuples, also within others."""
    if isinstance(value, msgspec.Struct):
        return tuple(map(_plain, msgspec.structs.astuple(value)))
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _object(value: Record) -> Record:
    if not isinstance(value, Row):
        raise TypeError(f"a {type(value).__name__} has no form in JSON")
    return value.as_dict()


_ENCODER = msgspec.json.Encoder(enc_hook=_object, decimal_format="number")
