"""Schemas: how a value becomes bytes and bytes become a value, for connectors and for ``map``.

::

    lines.map(schema.serialize)
    messages.flat_map(schema, output_type=schema.get_produced_type())

Law: ``deserialize`` answers None only for bytes that its settings say are to be left out; whatever
else cannot be read or written raises ValueError or TypeError with the bytes or the value in it.
"""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from headgate.api.row import Row
from headgate.api.types.coercion import short
from headgate.api.types.types import RowTypeInfo, TypeInformation, Types
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.checks import check_settings, whole


class SerializationSchema(ABC):
    """Turns values into bytes."""

    @abstractmethod
    def serialize(self, value: Record) -> bytes:
        """The bytes of one value."""


class DeserializationSchema(ABC):
    """Turns bytes into values."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Record:
        """The value of one message; None: there is none in it."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """What ``deserialize`` gives."""

    def flat_map(self, message: bytes) -> list[Record]:
        """For ``stream.flat_map(schema)``: what is to be left out is."""
        value = self.deserialize(message)
        return [] if value is None else [value]


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Texts in one encoding."""

    def __init__(self, charset: str = "UTF-8") -> None:
        try:
            codecs.lookup(charset)
        except LookupError:
            raise PlanInvalid(
                f"SimpleStringSchema was given the charset {charset!r}; name one that Python knows"
            ) from None
        self.charset = charset

    def serialize(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise TypeError(
                f"SimpleStringSchema was given {short(value)} of type {type(value).__name__}; "
                f"map the records to str first"
            )
        return value.encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        return str(message, self.charset)

    def get_produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, value: bytes) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(
                f"ByteArraySchema was given {short(value)} of type {type(value).__name__}; "
                f"map the records to bytes first"
            )
        return bytes(value)

    def deserialize(self, message: bytes) -> bytes:
        return bytes(message)

    def get_produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """The bytes that stand in one field of a Row."""

    def __init__(self, field_index: int) -> None:
        self.field_index = field_index
        check_settings(self, {"field_index": whole(0)})

    def serialize(self, value: Row) -> bytes:
        found = value[self.field_index] if self.field_index < len(value) else None
        if not isinstance(found, bytes | bytearray | memoryview):
            raise TypeError(
                f"RowFieldExtractorSchema: field {self.field_index} of {short(value)} holds no "
                f"bytes; put bytes there first"
            )
        return bytes(found)


def check_row_type(type_info: object, schema: str) -> RowTypeInfo:
    """The type of the rows that a schema reads or writes."""
    if isinstance(type_info, RowTypeInfo):
        return type_info
    raise PlanInvalid(
        f"{schema} was given the type {type_info!r}; give the rows' type, for instance "
        f"Types.ROW_NAMED(['word', 'count'], [Types.STRING(), Types.LONG()])"
    )


def bytes_maker(
    schema: "SerializationSchema | Callable[[Record], bytes]",
) -> Callable[[Record], bytes]:
    """What makes bytes of a record; raises TypeError if the schema does not."""
    serialize: Any = getattr(schema, "serialize", schema)

    def make(record: Record) -> bytes:
        data = serialize(record)
        if not isinstance(data, bytes):
            raise TypeError(f"the schema returned {type(data).__name__} instead of bytes")
        return data

    return make


def unreadable(schema: str, message: bytes, problem: object) -> ValueError:
    """What is raised for a message that is not what it should be."""
    return ValueError(
        f"{schema} cannot read {short(message)}: {problem}; "
        f"mend the input, or let the schema ignore parse errors"
    )
