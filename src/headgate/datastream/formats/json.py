"""Rows as JSON, where PyFlink has them."""

from headgate.connectors.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
