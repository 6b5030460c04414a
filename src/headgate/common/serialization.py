"""How records become bytes, where PyFlink has it."""

from headgate.connectors.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from headgate.connectors.file_sink_builder import Encoder
from headgate.connectors.json_rows import JsonRowDeserializationSchema, JsonRowSerializationSchema
from headgate.connectors.schemas import (
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
