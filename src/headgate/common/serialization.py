"""How records become bytes, where PyFlink has it."""

from headgate.connectors.files.sink import Encoder
from headgate.connectors.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from headgate.connectors.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from headgate.connectors.formats.schemas import (
    ByteArraySchema,
    DeserializationSchema,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)

__all__ = [
    "ByteArraySchema",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "DeserializationSchema",
    "Encoder",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]
