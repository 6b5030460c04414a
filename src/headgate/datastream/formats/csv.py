"""Rows as CSV, where PyFlink has them."""

from headgate.connectors.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]
