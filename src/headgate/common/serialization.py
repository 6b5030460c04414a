"""How records become bytes, where PyFlink has it."""

from headgate.connectors.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from headgate.connectors.file_sink_builder import Encoder
from headgate.connectors.json_rows import JsonRowDeserializationSchema, JsonRowSerializationSchema
from headgate.connectors.schemas import (
    DeserializationSchema,
    SerializationSchema,
    SimpleStringSchema,
)

__all__ = [
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "DeserializationSchema",
    "Encoder",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]
