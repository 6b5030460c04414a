"""Rows as JSON objects, one object to a message, under PyFlink's names.

msgspec reads straight into a struct that is made from the type of the rows: names that the type
does not have are skipped, texts become dates and decimals, bytes are base64.
"""

import msgspec

from headgate.api.row import Row
from headgate.api.types.types import (
    BasicTypeInfo,
    ElementsTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headgate.api.types.wires import or_none
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.formats.json_schema import row_type_of
from headgate.connectors.formats.schemas import (
    DeserializationSchema,
    SerializationSchema,
    check_row_type,
    unreadable,
)


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
            return self._type_info.coerced(_plain(self._decoder.decode(message)))  # type: ignore[no-any-return]
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
