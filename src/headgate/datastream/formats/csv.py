"""Rows as CSV, where PyFlink has them."""

from headgate.connectors.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]
