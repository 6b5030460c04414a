"""Rows as JSON, where PyFlink has them."""

from headgate.connectors.json_rows import JsonRowDeserializationSchema, JsonRowSerializationSchema

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
